{{- define "kafkalite.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if .Values.fullnameOverride -}}
{{- $full = .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- $full = .Release.Name -}}
{{- end -}}
{{- regexReplaceAll "[-.]+$" (trunc 50 $full) "" -}}
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
app.kubernetes.io/managed-by: {{ $root.Release.Service | quote }}
app.kubernetes.io/part-of: kafkalite
app.kubernetes.io/name: kafkalite
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* What selects the operator's pods, and never changes. */}}
{{- define "kafkalite.operatorSelector" -}}
app.kubernetes.io/name: kafkalite
app.kubernetes.io/instance: {{ .Release.Name | quote }}
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
{{- if and .Values.metrics.service.enabled (not (regexMatch "^[a-z][-a-z0-9]*$" (include "kafkalite.fullname" .))) -}}
{{- fail (printf "the operator's Service would be named %s-operator, and a Service's name has lower-case letters, digits and hyphens, a letter first: set fullnameOverride" (include "kafkalite.fullname" .)) -}}
{{- end -}}
{{- if or .Values.cluster.create .Values.topics -}}
{{- if and $watched (not (has .Release.Namespace $watched)) -}}
{{- fail (printf "cluster and topics are made in the namespace of the release, %s, which is not watched: add it to watchNamespaces" .Release.Namespace) -}}
{{- end -}}
{{- if not (has .Release.Namespace (include "kafkalite.brokerNamespaces" . | fromJsonArray)) -}}
{{- fail (printf "cluster and topics are made in the namespace of the release, %s, where no brokers may run: add it to brokers.namespaces" .Release.Namespace) -}}
{{- end -}}
{{- if not (.Capabilities.APIVersions.Has "kafkalite.io/v1alpha1") -}}
{{- fail "cluster.create and topics need the custom resource definitions, which this cluster does not have yet: install the chart without them first, then run helm upgrade with them (helm template: add --api-versions kafkalite.io/v1alpha1)" -}}
{{- end -}}
{{- end -}}
{{- if .Values.crds.enabled -}}
{{- include "kafkalite.checkDefinitions" . -}}
{{- end -}}
{{- end }}

{{/* Refuses a second owner of the definitions: each would overwrite those of the other. One that was uninstalled, which
leaves them behind, is none. */}}
{{- define "kafkalite.checkDefinitions" -}}
{{- $definition := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "kafkalitetopics.kafkalite.io" -}}
{{- $annotations := dig "metadata" "annotations" dict $definition -}}
{{- $owner := get $annotations "meta.helm.sh/release-name" -}}
{{- $place := get $annotations "meta.helm.sh/release-namespace" -}}
{{- if and $owner (or (ne $owner .Release.Name) (ne $place .Release.Namespace)) -}}
{{- range (lookup "apps/v1" "Deployment" $place "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- if and (eq (get $labels "app.kubernetes.io/name") "kafkalite") (eq (get $labels "app.kubernetes.io/component") "operator") (eq (get $labels "app.kubernetes.io/instance") $owner) -}}
{{- if eq $place $.Release.Namespace -}}
{{- fail (printf "release %s is in namespace %s already, and two would share a Lease and the brokers' service account: install this one into another namespace" $owner $place) -}}
{{- end -}}
{{- fail (printf "the custom resource definitions, which all namespaces share, belong to release %s in namespace %s: set crds.enabled=false here, and upgrade that release first" $owner $place) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
