{{- define "egret.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- define "egret.selector" -}}
app.kubernetes.io/name: egret
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "egret.labels" -}}
{{ include "egret.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "egret.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "egret.tokenSecret" -}}
{{ .Values.controlToken.existingSecret | default (printf "%s-control" (include "egret.fullname" .)) }}
{{- end -}}

{{/* The config: that of the values over what the chart needs. */}}
{{- define "egret.config" -}}
{{- $name := include "egret.fullname" . -}}
{{- $names := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- $listener := "0.0.0.0:8000" -}}
{{- if .Values.clients.existingSecret -}}
{{- $tokens := dict -}}
{{- range .Values.clients.names -}}{{- $_ := set $tokens . (printf "${file:/etc/egret-clients/%s}" .) -}}{{- end -}}
{{- $listener = dict "address" $listener "clients" (dict "tokens" $tokens) -}}
{{- end -}}
{{- $needed := dict
  "gateway" (dict "listen" (list $listener) "names" $names "timeouts" (dict "drain" "30s"))
  "control" (dict "listen" "0.0.0.0:8001" "token" "${env:EGRET_TOKEN}" "config_changes" "off")
  "data_dir" "/var/lib/egret"
  "log" (dict "format" "json") -}}
{{- toYaml (mustMergeOverwrite $needed (deepCopy .Values.config)) -}}
{{- end -}}

{{/* The pods that may call Egret, and the namespaces that may scrape it, as selectors in JSON. */}}
{{- define "egret.applications" -}}
{{ toJson (.Values.networkPolicy.applications | default (dict "matchLabels" (dict "egress" "egret"))) }}
{{- end -}}

{{- define "egret.monitoring" -}}
{{ toJson (.Values.networkPolicy.monitoring | default (dict "matchLabels" (dict "kubernetes.io/metadata.name" "monitoring"))) }}
{{- end -}}
