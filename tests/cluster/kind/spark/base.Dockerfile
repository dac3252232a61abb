# What `FROM` is for spark_app/Dockerfile where no registry can be asked: Spark of the published pyspark package, with Java and
# Python of Debian. spark/ of the context is made by tests/cluster/kind/spark_images.py.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY spark /opt/spark
COPY tests/cluster/kind/spark/entrypoint.sh /opt/entrypoint.sh
# Hadoop asks for the name of the user.
RUN echo 'spark:x:185:185::/tmp:/bin/sh' >>/etc/passwd && echo 'spark:x:185:' >>/etc/group \
 && ln -s /usr/lib/jvm/java-17-openjdk-* /usr/lib/jvm/java && chmod 755 /opt/entrypoint.sh
ENV JAVA_HOME=/usr/lib/jvm/java SPARK_HOME=/opt/spark PYTHONPATH=/opt/spark/python \
    PATH=/opt/spark/bin:/usr/lib/jvm/java/bin:/usr/bin:/bin PYSPARK_PYTHON=python3 PYSPARK_DRIVER_PYTHON=python3
WORKDIR /tmp
USER 185:185
ENTRYPOINT ["/opt/entrypoint.sh"]
