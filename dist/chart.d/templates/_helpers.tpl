{{- define "dwell.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "dwell.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "dwell.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "dwell.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "dwell.selector" -}}
app.kubernetes.io/name: {{ include "dwell.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dwell.labels" -}}
{{ include "dwell.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "dwell.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* More than one process may serve at the same time. */}}
{{- define "dwell.isMany" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) -}}true{{- end -}}
{{- end -}}

{{/* Values are where every replica finds them. */}}
{{- define "dwell.isShared" -}}
{{- $found := regexMatch "(?m)^[ \\t]*\\[(redis|memcached)\\]" .Values.config -}}
{{- range .Values.env -}}
{{- if regexMatch "^DWELL_(REDIS_URL|REDIS_CLUSTER|REDIS_SENTINELS|MEMCACHED_SERVERS)$" .name -}}
{{- $found = true -}}
{{- end -}}
{{- end -}}
{{- if $found -}}true{{- end -}}
{{- end -}}

{{/* Combinations that the schema cannot reject. */}}
{{- define "dwell.checked" -}}
{{- if and (include "dwell.isMany" .) (not (include "dwell.isShared" .)) -}}
{{- fail "replicas above 1 and autoscaling need [redis] or [memcached] in config: each replica has an embedded store of its own" -}}
{{- end -}}
{{- if and (include "dwell.isMany" .) .Values.store.enabled -}}
{{- fail "store.enabled needs replicas = 1: each replica has an embedded store of its own" -}}
{{- end -}}
{{- if and .Values.store.enabled (not .Values.networkPolicy.enabled) -}}
{{- fail "store.enabled needs networkPolicy.enabled: without it every pod of the cluster may write" -}}
{{- end -}}
{{- if le (int .Values.terminationGracePeriodSeconds) (int .Values.preStopSeconds) -}}
{{- fail "terminationGracePeriodSeconds must be more than preStopSeconds: nothing is left for the drain" -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.enabled needs httpRoute.parentRefs: the gateways of the route" -}}
{{- end -}}
{{- end -}}
