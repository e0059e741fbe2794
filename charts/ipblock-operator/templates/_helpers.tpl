{{/* Names, labels and the parts that several templates share. */}}

{{- define "ipblock-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ipblock-operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- $name := include "ipblock-operator.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "ipblock-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "ipblock-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: name an account, or set serviceAccount.create" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "ipblock-operator.matchLabels" -}}
app.kubernetes.io/name: {{ include "ipblock-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "ipblock-operator.labels" -}}
app.kubernetes.io/name: {{ include "ipblock-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The image of {"image": values, "key": their place, "version": without a tag}. */}}
{{- define "ipblock-operator.imageOf" -}}
{{- if eq (toString .image.tag) "latest" }}
{{- fail (printf "%s.tag: latest names another image each day; name a version or a digest" .key) }}
{{- end }}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- printf "%s:%s" .image.repository (default .version .image.tag) }}
{{- end }}
{{- end }}

{{- define "ipblock-operator.image" -}}
{{- include "ipblock-operator.imageOf" (dict "image" .Values.image "key" "image" "version" .Chart.AppVersion) }}
{{- end }}

{{/* The triggers as a list, also when config.trigger is YAML text. */}}
{{- define "ipblock-operator.triggers" -}}
{{- $triggers := .Values.config.trigger }}
{{- if kindIs "string" $triggers }}
{{- $triggers = fromYamlArray $triggers }}
{{- end }}
{{- dict "list" ($triggers | default list) | toJson }}
{{- end }}

{{/* The set engines as a list, also when config.engines is YAML text. */}}
{{- define "ipblock-operator.engines" -}}
{{- $engines := .Values.config.engines }}
{{- if kindIs "string" $engines }}
{{- $engines = fromYamlArray $engines }}
{{- end }}
{{- dict "list" ($engines | default list) | toJson }}
{{- end }}

{{/* The ports of the URLs in config.sources, also when it is YAML text, as {"list": [8080]}. */}}
{{- define "ipblock-operator.sourcePorts" -}}
{{- $sources := .Values.config.sources }}
{{- if kindIs "string" $sources }}
{{- $sources = fromYamlArray $sources }}
{{- end }}
{{- $ports := list }}
{{- range $sources }}
{{- $ports = append $ports (include "ipblock-operator.urlPort" (.url | default "") | int) }}
{{- end }}
{{- dict "list" ($ports | uniq | sortAlpha) | toJson }}
{{- end }}

{{/* The ports of config.gatewayHost and config.formerGateways (`engine host:port` a line) as {"list": [6080]}. */}}
{{- define "ipblock-operator.gatewayPorts" -}}
{{- $ports := list }}
{{- with .Values.config.gatewayHost | default "" | toString }}
{{- $ports = append $ports (include "ipblock-operator.urlPort" . | int) }}
{{- end }}
{{- range .Values.config.formerGateways | default "" | toString | splitList "\n" }}
{{- with regexReplaceAll "#.*$" . "" | trim }}
{{- $ports = append $ports (include "ipblock-operator.urlPort" (regexSplit "\\s+" . -1 | last) | int) }}
{{- end }}
{{- end }}
{{- dict "list" ($ports | uniq) | toJson }}
{{- end }}

{{/* The port of a URL or of host:port. */}}
{{- define "ipblock-operator.urlPort" -}}
{{- $authority := regexReplaceAll "^[a-z]+://" (toString .) "" | splitList "/" | first }}
{{- regexFind ":[0-9]+$" $authority | trimPrefix ":" | default (ternary "443" "80" (hasPrefix "https://" (toString .))) }}
{{- end }}

{{/* The ports of triggers, set engines and extraPorts as {"list": [{"name", "port", "of"}]}, each port once. */}}
{{- define "ipblock-operator.ports" -}}
{{- $ports := list }}
{{- $seen := dict }}
{{- range (include "ipblock-operator.triggers" . | fromJson).list }}
{{- $port := .addr | toString | splitList ":" | last }}
{{- if and (regexMatch "^[0-9]+$" $port) (not (hasKey $seen $port)) }}
{{- $ports = append $ports (dict "name" (ternary "trigger" (printf "trigger-%s" $port) (empty $seen)) "port" (int $port) "of" "triggers") }}
{{- $_ := set $seen $port true }}
{{- end }}
{{- end }}
{{- range (include "ipblock-operator.engines" . | fromJson).list }}
{{- $port := .addr | default "" | toString | splitList ":" | last }}
{{- if and (regexMatch "^[0-9]+$" $port) (not (hasKey $seen $port)) }}
{{- /* The first port of a type has its name: list, crowdsec. */}}
{{- $name := ternary (printf "%s-%s" .type $port) (toString .type) (hasKey $seen (toString .type)) }}
{{- $ports = append $ports (dict "name" $name "port" (int $port) "of" "engines") }}
{{- $_ := set $seen $port true }}
{{- $_ := set $seen (toString .type) true }}
{{- end }}
{{- end }}
{{- range .Values.service.extraPorts }}
{{- if not (hasKey $seen (toString .port)) }}
{{- $ports = append $ports (dict "name" .name "port" (int .port) "of" "triggers") }}
{{- $_ := set $seen (toString .port) true }}
{{- end }}
{{- end }}
{{- dict "list" $ports | toJson }}
{{- end }}

{{/* The objects of files/rbac.yaml, which `ipblock-operator rbac` prints, as {"list": […]}. */}}
{{- define "ipblock-operator.rbac" -}}
{{- $objects := list }}
{{- range regexSplit "(?m)^---$" (.Files.Get "files/rbac.yaml") -1 }}
{{- $objects = append $objects (fromYaml .) }}
{{- end }}
{{- dict "list" $objects | toJson }}
{{- end }}

{{/* The rights of the engines in config.engines and rbac.engines as {"list": […]}, from `ipblock-operator rbac --engine`. */}}
{{- define "ipblock-operator.engineRules" -}}
{{- $types := .Values.rbac.engines | default list }}
{{- range (include "ipblock-operator.engines" . | fromJson).list }}
{{- $types = append $types (toString .type) }}
{{- end }}
{{- $rules := list }}
{{- range $types | uniq | sortAlpha }}
{{- /* A type without a file needs no rights. */}}
{{- with $.Files.Get (printf "files/engines/%s.yaml" .) }}
{{- range regexSplit "(?m)^---$" . -1 }}
{{- $object := fromYaml . }}
{{- if eq $object.kind "ClusterRole" }}
{{- $rules = concat $rules $object.rules }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- dict "list" $rules | toJson }}
{{- end }}

{{/* The volume with the Secret. */}}
{{- define "ipblock-operator.secretsVolume" -}}
name: secrets
secret:
  secretName: {{ .Values.secrets.name }}
  optional: {{ .Values.secrets.optional }}
  # 0440
  defaultMode: 288
{{- end }}

{{- define "ipblock-operator.agentName" -}}
{{- printf "%s-agent" (include "ipblock-operator.fullname" .) }}
{{- end }}

{{- define "ipblock-operator.agentMatchLabels" -}}
app.kubernetes.io/name: {{ include "ipblock-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}

{{/* The URL that agents poll: agent.listUrl, or that of an engine of type list in config.engines. */}}
{{- define "ipblock-operator.listUrl" -}}
{{- $agent := .Values.agent }}
{{- $url := $agent.listUrl }}
{{- if not $url }}
{{- $engine := dict }}
{{- range (include "ipblock-operator.engines" . | fromJson).list }}
{{- if and (eq (toString .type) "list") (empty $engine) (or (not $agent.engine) (eq $agent.engine .name)) }}
{{- $engine = . }}
{{- end }}
{{- end }}
{{- if not $engine }}
{{- fail (printf "agent.enabled: config.engines has no engine of type list%s; add it, or set agent.listUrl" (ternary (printf " with the name %s" $agent.engine) "" (not (empty $agent.engine)))) }}
{{- end }}
{{- if $engine.clientCAFile }}
{{- fail (printf "agent.enabled: the engine %s asks its readers for certificates (clientCAFile), and agents have none" $engine.name) }}
{{- end }}
{{- $port := $engine.addr | default "" | toString | splitList ":" | last }}
{{- $url = printf "%s://%s.%s:%s%s" (ternary "https" "http" (not (empty $engine.tlsCertFile))) .Values.listService.name .Release.Namespace $port ($engine.path | default "/bans") }}
{{- end }}
{{- if and (hasPrefix "http://" $url) $agent.secrets.tokenKey (not $agent.allowBearerOverHttp) }}
{{- fail (printf "agent.allowBearerOverHttp: %s sends the token in plain text; give the engine tlsCertFile and tlsKeyFile, or allow it" $url) }}
{{- end }}
{{- $url }}
{{- end }}

{{/* Objects of `helm uninstall` alone: no account has their rights before it. */}}
{{- define "ipblock-operator.hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
