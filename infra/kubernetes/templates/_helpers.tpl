{{- define "keylane.labels" -}}
app.kubernetes.io/name: keylane
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "keylane.image" -}}
{{ .root.Values.image.registry }}/keylane-{{ .part }}:{{ .root.Values.image.tag }}
{{- end }}

{{- define "keylane.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "keylane.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Where pods run, and what they are pulled with: of a part's values. */}}
{{- define "keylane.placement" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "keylane.env" -}}
{{- range $variable, $key := index .root.Values.secret .part }}
- name: {{ $variable }}
  valueFrom: {secretKeyRef: {name: {{ $.root.Values.secret.name }}, key: {{ $key }}}}
{{- end }}
{{- range $variable, $value := (index .root.Values .part).settings }}
- {name: {{ $variable }}, value: {{ $value | quote }}}
{{- end }}
{{- range (index .root.Values .part).env }}
- {{ toJson . }}
{{- end }}
{{- end }}

{{- define "keylane.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .root.Release.Name }}-{{ .part }}
  labels: {{- include "keylane.labels" .root | nindent 4 }}
  {{- with .annotations }}
  annotations: {{ toJson . }}
  {{- end }}
{{- end }}

{{- /* keylane.toml: what values say, and how Spark starts executors beside this driver. */}}
{{- define "keylane.toml" -}}
{{ .Values.config }}
{{- with .Values.executors }}
{{- if .instances }}
[spark]
"spark.master" = "k8s://https://kubernetes.default.svc:443"
"spark.kubernetes.namespace" = {{ $.Release.Namespace | quote }}
"spark.kubernetes.container.image" = {{ include "keylane.image" (dict "root" $ "part" "job") | quote }}
"spark.kubernetes.container.image.pullPolicy" = {{ $.Values.image.pullPolicy | quote }}
"spark.kubernetes.executor.podTemplateFile" = "/etc/keylane/executor.yaml"
# The executors go when this pod goes, and reach it by this name and these ports.
"spark.kubernetes.driver.pod.name" = "{{ $.Release.Name }}-job-0"
"spark.driver.host" = "{{ $.Release.Name }}-job-0.{{ $.Release.Name }}-job"
"spark.driver.bindAddress" = "0.0.0.0"
"spark.driver.port" = 7078
"spark.driver.blockManager.port" = 7079
"spark.driver.memory" = {{ .driverMemory | quote }}
"spark.executor.instances" = {{ .instances }}
"spark.executor.cores" = {{ .cores }}
"spark.kubernetes.executor.request.cores" = {{ .requestCores | quote }}
"spark.executor.memory" = {{ .memory | quote }}
"spark.executor.memoryOverhead" = {{ .memoryOverhead | quote }}
# Tasks have the passwords of Kafka and Redis.
"spark.authenticate" = true
"spark.network.crypto.enabled" = true
{{- range $name, $value := .spark }}
{{ $name | quote }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The template of the executors' pods. Spark adds image, resources, environment, labels and owner. */}}
{{- define "keylane.executor" -}}
apiVersion: v1
kind: Pod
metadata:
  name: executor
  labels: {keylane: {{ .Release.Name }}-executor}
spec:
  # Executors ask Kubernetes nothing.
  serviceAccountName: {{ .Release.Name }}-executor
  automountServiceAccountToken: false
  securityContext: {{- include "keylane.podSecurity" . | nindent 4 }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: topology.kubernetes.io/zone
      whenUnsatisfiable: ScheduleAnyway
      labelSelector: {matchLabels: {keylane: {{ .Release.Name }}-executor}}
  {{- include "keylane.placement" (dict "root" . "values" .Values.executors) | nindent 2 }}
  containers:
    - name: executor
      command: [python, -m, keylane_spark.engine.executor]
      # Spark puts what the driver sends, as its jars, into the working directory.
      workingDir: /tmp
      securityContext: {{- include "keylane.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
  volumes:
    - {name: tmp, emptyDir: {}}
{{- end }}
