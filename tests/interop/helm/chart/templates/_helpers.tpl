{{- define "labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "pod" -}}
metadata:
  labels: {app: {{ .Release.Name }}}
  {{- if .Values.annotated }}
  annotations: {example.com/annotated: "yes"}
  {{- end }}
spec:
  containers:
  - name: web
    image: {{ .Values.image }}
    ports: [{containerPort: {{ .Values.port }}, name: http}]
    resources: {requests: {cpu: 100m, memory: 64Mi}}
    envFrom: [{configMapRef: {name: {{ .Release.Name }}}}]
{{- end }}
