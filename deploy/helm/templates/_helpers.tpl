{{- define "understudy.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "understudy.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "understudy.labels" -}}
{{ include "understudy.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- /* understudy.pod is the template of a pod: of a server, or of a worker that only executes. */ -}}
{{- define "understudy.pod" -}}
{{- $v := .root.Values }}
{{- $worker := eq .component "worker" }}
metadata:
  labels: {{- include "understudy.labels" . | nindent 4 }}
  annotations:
    {{- with $v.langgraph }}
    checksum/langgraph: {{ toJson . | sha256sum }}
    {{- end }}
    {{- with $v.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  automountServiceAccountToken: false
  {{- with $v.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext: {runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, fsGroupChangePolicy: OnRootMismatch, seccompProfile: {type: RuntimeDefault}}
  # Longer than what running runs get.
  terminationGracePeriodSeconds: {{ add $v.graceSeconds (ternary 0 $v.drainSeconds $worker) 20 }}
  containers:
    - name: {{ .component }}
      image: {{ printf "%s:%s" $v.image.repository (default .root.Chart.AppVersion $v.image.tag) | quote }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args:
        - {{ ternary "worker" "serve" $worker }}
        - --host=0.0.0.0
        - --grace={{ $v.graceSeconds }}s
        {{- if $worker }}
        - --health-port=2026
        {{- else }}
        - --port=2024
        - --drain={{ $v.drainSeconds }}s
        {{- if $v.noAuth }}
        - --no-auth=true
        {{- end }}
        {{- if not $v.database.secret }}
        - --data=/data
        {{- end }}
        {{- end }}
        {{- if $v.langgraph }}
        - --config=/etc/understudy/langgraph.json
        {{- end }}
      env:
        {{- if $v.database.secret }}
        - {name: UNDERSTUDY_DATABASE_URL, valueFrom: {secretKeyRef: {name: {{ $v.database.secret | quote }}, key: {{ $v.database.key | quote }}}}}
        {{- end }}
        {{- if $v.redis.secret }}
        - {name: UNDERSTUDY_REDIS_URL, valueFrom: {secretKeyRef: {name: {{ $v.redis.secret | quote }}, key: {{ $v.redis.key | quote }}}}}
        {{- end }}
        {{- $fixed := dict "UNDERSTUDY_HOST" "the chart sets it" "UNDERSTUDY_PORT" "the chart sets it" "UNDERSTUDY_HEALTH_PORT" "the chart sets it" "UNDERSTUDY_GRACE" "set graceSeconds" "UNDERSTUDY_DRAIN" "set drainSeconds" "UNDERSTUDY_NO_AUTH" "set noAuth" "UNDERSTUDY_DATA" "set persistence" "UNDERSTUDY_CONFIG" "set langgraph, or use an image with one" "UNDERSTUDY_DATABASE_URL" "set database.secret" "DATABASE_URI" "set database.secret" "POSTGRES_URI" "set database.secret" "UNDERSTUDY_REDIS_URL" "set redis.secret" "REDIS_URI" "set redis.secret" "UNDERSTUDY_TLS_CERT" "probes speak HTTP; set ingress.tlsSecret" "UNDERSTUDY_TLS_KEY" "probes speak HTTP; set ingress.tlsSecret" "UNDERSTUDY_TLS_CLIENT_CA" "probes speak HTTP; check clients at the ingress" }}
        {{- range $name, $value := ternary (merge (dict) $v.workers.settings $v.settings) $v.settings $worker }}
        {{- with get $fixed $name }}{{ fail (printf "%s cannot be among settings: %s" $name .) }}{{ end }}
        - {name: {{ $name }}, value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}}
        {{- end }}
      {{- with $v.envFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: http, containerPort: {{ ternary 2026 2024 $worker }}}
      # A server that is only unready keeps its runs: it must not be killed.
      startupProbe: {httpGet: {path: {{ ternary "/livez" "/ok" $worker }}, port: http}, periodSeconds: 2, failureThreshold: 60, timeoutSeconds: 3}
      livenessProbe: {httpGet: {path: /livez, port: http}, periodSeconds: 10, timeoutSeconds: 3}
      readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 3, timeoutSeconds: 3}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      resources: {{- toYaml (ternary $v.workers.resources $v.resources $worker) | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: tmp, mountPath: /tmp}
        {{- if $v.langgraph }}
        - {name: langgraph, mountPath: /etc/understudy, readOnly: true}
        {{- end }}
  volumes:
    - name: data
      {{- if or $worker $v.database.secret }}
      emptyDir: {}
      {{- else }}
      persistentVolumeClaim: {claimName: {{ default (include "understudy.name" .root) $v.persistence.existingClaim | quote }}}
      {{- end }}
    - {name: tmp, emptyDir: {}}
    {{- if $v.langgraph }}
    - {name: langgraph, configMap: {name: {{ include "understudy.name" .root }}}}
    {{- end }}
  {{- with $v.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
