# The Kubeflow spark-operator: it runs spark-submit in its own container, so it is made upon Spark.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY spark-operator /usr/bin/spark-operator
ENTRYPOINT ["/usr/bin/spark-operator"]
