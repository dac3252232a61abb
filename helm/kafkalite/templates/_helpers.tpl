{{- define "kafkalite.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "kafkalite.operatorName" -}}
{{ include "kafkalite.fullname" . }}-operator
{{- end }}

{{- define "kafkalite.operatorServiceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "kafkalite.operatorName" .) .Values.serviceAccount.name }}
{{- else -}}
{{ required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{/* Labels of every object. Argument: list of the root and the component. */}}
{{- define "kafkalite.labels" -}}
{{- $root := index . 0 -}}
{{- with $root.Values.commonLabels }}
{{- toYaml . }}
{{ end -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: kafkalite
app.kubernetes.io/name: kafkalite
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* What selects the operator's pods, and never changes. */}}
{{- define "kafkalite.operatorSelector" -}}
app.kubernetes.io/name: kafkalite
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{/* An image. Argument: list of the root and a map of repository, tag and digest. */}}
{{- define "kafkalite.image" -}}
{{- $root := index . 0 -}}
{{- with index . 1 -}}
{{- if eq .tag "latest" -}}
{{- fail (printf "%s: the tag latest moves, and nobody could tell what runs; name a version, or a digest" .repository) -}}
{{- end -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $root.Chart.AppVersion .tag }}{{ end }}
{{- end -}}
{{- end }}

{{/* The namespaces that are watched, as a JSON array; empty for all. */}}
{{- define "kafkalite.watched" -}}
{{- if .Values.watchAllNamespaces -}}
[]
{{- else -}}
{{ default (list .Release.Namespace) .Values.watchNamespaces | uniq | toJson }}
{{- end -}}
{{- end }}

{{/* The namespaces where brokers run, as a JSON array. */}}
{{- define "kafkalite.brokerNamespaces" -}}
{{- if .Values.brokers.namespaces -}}
{{ .Values.brokers.namespaces | uniq | toJson }}
{{- else if .Values.watchAllNamespaces -}}
{{ list .Release.Namespace | toJson }}
{{- else -}}
{{ include "kafkalite.watched" . }}
{{- end -}}
{{- end }}

{{/* Refuses combinations that would install, and then not work. */}}
{{- define "kafkalite.check" -}}
{{- $watched := include "kafkalite.watched" . | fromJsonArray -}}
{{- if and .Values.watchAllNamespaces .Values.watchNamespaces -}}
{{- fail "watchNamespaces and watchAllNamespaces exclude each other: name the namespaces, or set watchNamespaces to []" -}}
{{- end -}}
{{- if $watched -}}
{{- range .Values.brokers.namespaces -}}
{{- if not (has . $watched) -}}
{{- fail (printf "brokers.namespaces: %s is not watched, so no broker will run there; add it to watchNamespaces" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.service.enabled: true" -}}
{{- end -}}
{{- with .Values.metrics.prometheusRule -}}
{{- if and .enabled (not .operatorSelector) (not $.Values.metrics.serviceMonitor.enabled) -}}
{{- fail "metrics.prometheusRule.enabled needs metrics.serviceMonitor.enabled: true, or in metrics.prometheusRule.operatorSelector the labels that your scrape configuration gives to the operator's series" -}}
{{- end -}}
{{- if and .enabled (not .brokerSelector) (not $.Values.metrics.podMonitor.enabled) -}}
{{- fail "metrics.prometheusRule.enabled needs metrics.podMonitor.enabled: true, or in metrics.prometheusRule.brokerSelector the labels that your scrape configuration gives to the brokers' series" -}}
{{- end -}}
{{- end -}}
{{- if or .Values.cluster.create .Values.topics -}}
{{- if and $watched (not (has .Release.Namespace $watched)) -}}
{{- fail (printf "cluster and topics are made in the namespace of the release, %s, which is not watched: add it to watchNamespaces" .Release.Namespace) -}}
{{- end -}}
{{- if not (.Capabilities.APIVersions.Has "kafkalite.io/v1alpha1") -}}
{{- fail "cluster.create and topics need the custom resource definitions, which this cluster does not have yet: install the chart without them first, then run helm upgrade with them (helm template: add --api-versions kafkalite.io/v1alpha1)" -}}
{{- end -}}
{{- end -}}
{{- end }}
