{{- /*
Copyright (c) 2026, rackscale.nvlink contributors
GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
*/ -}}
{{- define "lab.container" }}
        - name: {{ .name }}
          image: {{ include "lab.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          securityContext: {{ toJson .values.securityContext }}
          resources: {{ toJson .values.resources }}
          {{- if gt (int .values.healthcheckPort) 0 }}
          livenessProbe:
            grpc: {port: {{ .values.healthcheckPort }}, service: liveness}
          {{- end }}
          env:
            {{- $more := dict "LOG_VERBOSITY" .root.Values.logVerbosity }}
            {{- if hasKey .values "gpuCliqueLabelEnabled" }}
            {{- $imex := .root.Values.resources.computeDomains.imex }}
            {{- $_ := set $more "IMEX_MODE" $imex.mode }}{{ $_ := set $more "IMEX_ISOLATION" $imex.isolation }}
            {{- $_ := set $more "IMEX_HOST_SOCKET_PATH" $imex.hostSocketPath }}
            {{- $_ := set $more "GPU_CLIQUE_LABEL_ENABLED" .values.gpuCliqueLabelEnabled }}
            {{- end }}
            {{- with include "lab.gates" .root }}{{ $_ := set $more "FEATURE_GATES" . }}{{ end }}
            {{- range $key, $value := $more }}
            - {name: {{ $key }}, value: "{{ $value }}"}
            {{- end }}
            {{- with .values.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
{{- end }}
{{- define "lab.template" }}
  selector:
    matchLabels:
      {{ include "lab.selector" .root }}: {{ .part }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ include "lab.name" .root }}
        app.kubernetes.io/instance: {{ .root.Release.Name }}
        {{ include "lab.selector" .root }}: {{ .part }}
    spec:
      priorityClassName: {{ .values.priorityClassName | quote }}
      serviceAccountName: {{ include "lab.account" .root }}-{{ .part | replace "-" "" }}
      {{- with .values.nodeSelector }}
      nodeSelector: {{ toJson . }}
      {{- end }}
      affinity: {{ toJson .values.affinity }}
      tolerations: {{ toJson .values.tolerations }}
      containers:
{{- end }}
{{- with .Values.kubeletPlugin }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ include "lab.name" $ }}-kubelet-plugin
  {{- include "lab.metadata" $ | nindent 2 }}
spec:
  updateStrategy: {{ toJson .updateStrategy }}
  {{- include "lab.template" (dict "root" $ "part" "kubelet-plugin" "values" .) }}
        {{- if $.Values.resources.computeDomains.enabled }}
        {{- include "lab.container" (dict "root" $ "name" "compute-domains" "values" .containers.computeDomains) }}
        {{- end }}
        {{- if $.Values.resources.gpus.enabled }}
        {{- include "lab.container" (dict "root" $ "name" "gpus" "values" .containers.gpus) }}
        {{- end }}
{{- end }}
{{- with .Values.controller }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "lab.name" $ }}-controller
  {{- include "lab.metadata" $ | nindent 2 }}
spec:
  replicas: {{ .replicas }}
  {{- include "lab.template" (dict "root" $ "part" "controller" "values" .) }}
        {{- include "lab.container" (dict "root" $ "name" "compute-domain" "values" .containers.computeDomain) }}
{{- end }}
