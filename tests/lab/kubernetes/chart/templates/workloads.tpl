{{- /*
Copyright (c) 2026, rackscale.nvlink contributors
GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
Texts stand between quotes without being escaped, as in the driver's chart: one with a quote of its own breaks the YAML.
*/ -}}
{{- define "lab.container" }}
        - name: {{ .name }}
          image: {{ include "lab.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          securityContext: {{ toJson .values.securityContext }}
          resources: {{ toJson .values.resources }}
          {{- if gt (int .port) 0 }}
          livenessProbe:
            grpc: {port: {{ .port }}, service: liveness}
          {{- end }}
          env:
            {{- $more := dict "LOG_VERBOSITY" .root.Values.logVerbosity "NVIDIA_DRIVER_ROOT" .root.Values.nvidiaDriverRoot }}
            {{- with include "lab.gates" .root }}{{ $_ := set $more "FEATURE_GATES" . }}{{ end }}
            {{- with .root.Values.nvidiaCDIHookPath }}{{ $_ := set $more "NVIDIA_CDI_HOOK_PATH" . }}{{ end }}
            {{- with .root.Values.resources.computeDomains.imex }}
            {{- $_ := set $more "IMEX_MODE" .mode }}{{ $_ := set $more "IMEX_ISOLATION" .isolation }}
            {{- $_ := set $more "IMEX_HOST_SOCKET_PATH" .hostSocketPath }}
            {{- end }}
            {{- $secrets := list }}{{ range .root.Values.imagePullSecrets }}{{ $secrets = append $secrets .name }}{{ end }}
            {{- with $secrets }}{{ $_ := set $more "IMAGE_PULL_SECRETS" (join "," .) }}{{ end }}
            {{- range $key, $value := merge $more .more }}
            - name: {{ $key }}
              value: "{{ $value }}"
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
      {{- with .priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
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
            - name: NVIDIA_DRIVER_ROOT
              value: "{{ $.Values.nvidiaDriverRoot }}"
            - {name: KUBELET_REGISTRAR_DIRECTORY_PATH, value: {{ .kubeletRegistrarDirectoryPath | quote }}}
            - {name: KUBELET_PLUGINS_DIRECTORY_PATH, value: {{ .kubeletPluginsDirectoryPath | quote }}}
      containers:
        {{- if $.Values.resources.computeDomains.enabled }}
        {{- $more := dict "HEALTHCHECK_PORT" (int .containers.computeDomains.healthcheckPort) }}
        {{- $_ := set $more "GPU_CLIQUE_LABEL_ENABLED" .containers.computeDomains.gpuCliqueLabelEnabled }}
        {{- $_ := set $more "HTTP_ENDPOINT" .metrics.computeDomainHttpEndpoint }}{{ $_ := set $more "METRICS_PATH" .metrics.metricsPath }}
        {{- $container := dict "root" $ "name" "compute-domains" "values" .containers.computeDomains "more" $more }}
        {{- include "lab.container" (set $container "port" .containers.computeDomains.healthcheckPort) }}
        {{- end }}
        {{- if $.Values.resources.gpus.enabled }}
        {{- $more := dict "HEALTHCHECK_PORT" (int .containers.gpus.healthcheckPort) }}
        {{- $_ := set $more "HTTP_ENDPOINT" .metrics.gpuHttpEndpoint }}{{ $_ := set $more "METRICS_PATH" .metrics.metricsPath }}
        {{- with $.Values.consumableShares }}{{ $_ := set $more "CONSUMABLE_SHARES" . }}{{ end }}
        {{- $container := dict "root" $ "name" "gpus" "values" .containers.gpus "more" $more }}
        {{- include "lab.container" (set $container "port" .containers.gpus.healthcheckPort) }}
        {{- end }}
      volumes:
        - name: driver-root
          hostPath:
            path: {{ $.Values.nvidiaDriverRoot }}
        {{- with $.Values.altProcDevices }}
        - name: alt-proc-devices
          hostPath:
            path: {{ . }}
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
      {{- with .priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      serviceAccountName: {{ $account }}-controller
      securityContext: {{ toJson .podSecurityContext }}
      nodeSelector: {{ toJson .nodeSelector }}
      affinity: {{ toJson .affinity }}
      tolerations: {{ toJson .tolerations }}
      containers:
        {{- $more := dict "LEADER_ELECTION_ENABLED" .leaderElection.enabled "HTTP_ENDPOINT" .metrics.httpEndpoint }}
        {{- $_ := set $more "METRICS_PATH" .metrics.metricsPath }}{{ $_ := set $more "PPROF_PATH" .metrics.profilePath }}
        {{- $_ := set $more "LEADER_ELECTION_LEASE_LOCK_NAME" (printf "%s-controller" $name) }}
        {{- $_ := set $more "LEADER_ELECTION_LEASE_LOCK_NAMESPACE" (include "lab.namespace" $) }}
        {{- $_ := set $more "LEADER_ELECTION_LEASE_DURATION" .leaderElection.leaseDuration }}
        {{- $_ := set $more "LEADER_ELECTION_RENEW_DEADLINE" .leaderElection.renewDeadline }}
        {{- $_ := set $more "LEADER_ELECTION_RETRY_PERIOD" .leaderElection.retryPeriod }}
        {{- include "lab.container" (dict "root" $ "name" "compute-domain" "values" .containers.computeDomain "more" $more) }}
{{- end }}
