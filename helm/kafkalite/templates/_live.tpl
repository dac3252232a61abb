{{- /* What is asked of the API server before a cluster or a topic of the values is rendered. `helm template` asks nobody:
there `lookup` finds nothing. */ -}}

{{/* A custom resource as it is, as JSON; {} without. Argument: list of the root, the kind and the name. */}}
{{- define "kafkalite.live" -}}
{{- $root := index . 0 -}}
{{- if $root.Capabilities.APIVersions.Has "kafkalite.io/v1alpha1" -}}
{{ lookup "kafkalite.io/v1alpha1" (index . 1) $root.Release.Namespace (index . 2) | toJson }}
{{- else -}}
{}
{{- end -}}
{{- end }}

{{/* The spec of a topic, as JSON. Nobody may add clusterRef to a topic or take it away, so one that is there decides;
without clusterRef a topic belongs to the cluster named kafkalite. Argument: list of the root, the name and the spec. */}}
{{- define "kafkalite.topicSpec" -}}
{{- $root := index . 0 -}}
{{- $spec := index . 2 | default dict -}}
{{- $live := include "kafkalite.live" (list $root "KafkaLiteTopic" (index . 1)) | fromJson -}}
{{- $cluster := "" -}}
{{- if $live.spec -}}
{{- $cluster = dig "clusterRef" "name" "" $live.spec -}}
{{- else if and $root.Values.cluster.create (ne $root.Values.cluster.name "kafkalite") -}}
{{- $cluster = $root.Values.cluster.name -}}
{{- end -}}
{{- if and $cluster (not $spec.clusterRef) -}}
{{- $spec = merge (dict "clusterRef" (dict "name" $cluster)) $spec -}}
{{- end -}}
{{ $spec | toJson }}
{{- end }}

{{/* Refuses values that helm would pass over: it patches what it takes up by what has changed in the chart, which is
nothing. */}}
{{- define "kafkalite.checkLive" -}}
{{- $ns := .Release.Namespace -}}
{{- $wanted := list -}}
{{- if .Values.cluster.create -}}
{{- $wanted = append $wanted (list "KafkaLiteCluster" "klc" .Values.cluster.name .Values.cluster.spec) -}}
{{- end -}}
{{- range $name, $spec := .Values.topics -}}
{{- $wanted = append $wanted (list "KafkaLiteTopic" "klt" $name $spec) -}}
{{- end -}}
{{- $strange := list -}}
{{- $different := "" -}}
{{- range $wanted -}}
{{- $name := printf "%s/%s" (index . 1) (index . 2) -}}
{{- $live := include "kafkalite.live" (list $ (index . 0) (index . 2)) | fromJson -}}
{{- if $live.metadata -}}
{{- $owned := eq (dig "labels" "app.kubernetes.io/managed-by" "" $live.metadata) "Helm" -}}
{{- if not $owned -}}
{{- $strange = append $strange $name -}}
{{- end -}}
{{- if or $.Release.IsInstall (not $owned) -}}
{{- $different = print $different (include "kafkalite.differences" (list (printf "%s spec" $name) (index . 3) $live.spec)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $instead := "\nhelm changes nothing of what it takes up, and the values say otherwise. Make them equal, in the values or with kubectl edit:" -}}
{{- if $strange -}}
{{- $all := join " " $strange -}}
{{- fail (printf "%s: there already, made by the operator, by kubectl or by a Kafka client. To have this release take it up as it is:\n  kubectl label -n %s %s app.kubernetes.io/managed-by=Helm\n  kubectl annotate -n %s %s meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s\n%s" (join ", " $strange) $ns $all $ns $all .Release.Name $ns (empty $different | ternary "" (print $instead $different))) -}}
{{- else if $different -}}
{{- fail (printf "clusters or topics of an earlier release are there.%s%s" $instead $different) -}}
{{- end -}}
{{- end }}

{{/* A line for each place where something is not as wanted; what is there besides is left alone. Argument: list of the
place, what is wanted and what is there. */}}
{{- define "kafkalite.differences" -}}
{{- $place := index . 0 -}}
{{- $wanted := index . 1 -}}
{{- $live := index . 2 -}}
{{- if kindIs "invalid" $wanted -}}
{{- else if and (kindIs "map" $wanted) (kindIs "map" $live) -}}
{{- range $name, $value := $wanted -}}
{{- include "kafkalite.differences" (list (printf "%s.%s" $place $name) $value (index $live $name)) -}}
{{- end -}}
{{- else if and (kindIs "map" $wanted) (kindIs "invalid" $live) -}}
{{- range $name, $value := $wanted -}}
{{- include "kafkalite.differences" (list (printf "%s.%s" $place $name) $value nil) -}}
{{- end -}}
{{- else if and (kindIs "slice" $wanted) (kindIs "slice" $live) (eq (len $wanted) (len ($live | default list))) -}}
{{- range $index, $value := $wanted -}}
{{- include "kafkalite.differences" (list (printf "%s[%d]" $place $index) $value (index $live $index)) -}}
{{- end -}}
{{- else if ne (toJson $wanted) (toJson $live) -}}
{{- printf "\n  %s: %s in the values, %s there" $place (toJson $wanted) (kindIs "invalid" $live | ternary "nothing" (toJson $live)) -}}
{{- end -}}
{{- end }}
