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
          env:
            - {name: LOG_VERBOSITY, value: {{ .root.Values.logVerbosity | quote }}}
            - {name: NVIDIA_DRIVER_ROOT, value: {{ .root.Values.nvidiaDriverRoot | quote }}}
            {{- with include "lab.gates" .root }}
            - {name: FEATURE_GATES, value: {{ . | quote }}}
            {{- end }}
            {{- with .root.Values.resources.computeDomains.imex }}
            - {name: IMEX_MODE, value: {{ .mode | quote }}}
            - {name: IMEX_ISOLATION, value: {{ .isolation | quote }}}
            - {name: IMEX_HOST_SOCKET_PATH, value: {{ .hostSocketPath | quote }}}
            {{- end }}
            {{- range $key, $value := .more }}
            - {name: {{ $key }}, value: {{ $value | toString | quote }}}
            {{- end }}
            {{- with .values.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
{{- end }}
{{- $name := include "lab.name" . }}{{ $account := include "lab.account" . | trim }}
{{- with .Values.kubeletPlugin }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ $name }}-kubelet-plugin
  namespace: {{ include "lab.namespace" $ }}
  labels:
    {{- include "lab.labels" $ | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{ include "lab.selector" $ }}: kubelet-plugin
      {{- with $.Values.selectorLabelsOverride }}{{ toYaml . | nindent 6 }}{{ end }}
  updateStrategy: {{ toJson .updateStrategy }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ $name }}
        app.kubernetes.io/instance: {{ $.Release.Name }}
        {{ include "lab.selector" $ }}: kubelet-plugin
        {{- with $.Values.selectorLabelsOverride }}{{ toYaml . | nindent 8 }}{{ end }}
      annotations: {{ toJson .podAnnotations }}
    spec:
      priorityClassName: {{ .priorityClassName }}
      serviceAccountName: {{ $account }}-kubeletplugin
      securityContext: {{ toJson .podSecurityContext }}
      imagePullSecrets: {{ toJson $.Values.imagePullSecrets }}
      nodeSelector: {{ toJson .nodeSelector }}
      affinity: {{ toJson .affinity }}
      tolerations: {{ toJson .tolerations }}
      initContainers:
        - name: init-container
          image: {{ include "lab.image" $ }}
          securityContext: {{ toJson .containers.init.securityContext }}
          resources: {{ toJson .containers.init.resources }}
          env:
            - {name: NVIDIA_DRIVER_ROOT, value: {{ $.Values.nvidiaDriverRoot | quote }}}
            - {name: KUBELET_REGISTRAR_DIRECTORY_PATH, value: {{ .kubeletRegistrarDirectoryPath | quote }}}
            - {name: KUBELET_PLUGINS_DIRECTORY_PATH, value: {{ .kubeletPluginsDirectoryPath | quote }}}
      containers:
        {{- if $.Values.resources.computeDomains.enabled }}
        {{- $more := dict "HEALTHCHECK_PORT" (int .containers.computeDomains.healthcheckPort) }}
        {{- $_ := set $more "GPU_CLIQUE_LABEL_ENABLED" .containers.computeDomains.gpuCliqueLabelEnabled }}
        {{- include "lab.container" (dict "root" $ "name" "compute-domains" "values" .containers.computeDomains "more" $more) }}
        {{- end }}
        {{- if $.Values.resources.gpus.enabled }}
        {{- $more := dict "HEALTHCHECK_PORT" (int .containers.gpus.healthcheckPort) }}
        {{- include "lab.container" (dict "root" $ "name" "gpus" "values" .containers.gpus "more" $more) }}
        {{- end }}
{{- end }}
{{- with .Values.controller }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}-controller
  namespace: {{ include "lab.namespace" $ }}
  labels:
    {{- include "lab.labels" $ | nindent 4 }}
spec:
  replicas: {{ .replicas }}
  selector:
    matchLabels:
      {{ include "lab.selector" $ }}: controller
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ $name }}
        app.kubernetes.io/instance: {{ $.Release.Name }}
        {{ include "lab.selector" $ }}: controller
      annotations: {{ toJson .podAnnotations }}
    spec:
      priorityClassName: {{ .priorityClassName }}
      serviceAccountName: {{ $account }}-controller
      securityContext: {{ toJson .podSecurityContext }}
      nodeSelector: {{ toJson .nodeSelector }}
      affinity: {{ toJson .affinity }}
      tolerations: {{ toJson .tolerations }}
      containers:
        {{- $more := dict "LEADER_ELECTION_ENABLED" .leaderElection.enabled }}
        {{- include "lab.container" (dict "root" $ "name" "compute-domain" "values" .containers.computeDomain "more" $more) }}
{{- end }}
