{{- /*
Copyright (c) 2026, rackscale.nvlink contributors
GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
The chart's rejections that tests meet, the DeviceClasses, and the accounts of the pods, without permissions.
*/ -}}
{{- if and .Values.resources.gpus.enabled (not .Values.gpuResourcesEnabledOverride) }}
{{- fail "'resources.gpus.enabled=true' collides with the device plugin; set 'gpuResourcesEnabledOverride=true' too" }}
{{- end }}
{{- if .Values.nvidiaCtkPath }}
{{- fail "Setting a user-defined nvidiaCtkPath is no longer supported" }}
{{- end }}
{{- if and (include "lab.hostManaged" .) (not (get .Values.featureGates "HostManagedIMEXDaemon")) }}
{{- fail "resources.computeDomains.imex.mode=hostManaged requires featureGates.HostManagedIMEXDaemon=true" }}
{{- end }}
{{- define "lab.class" }}
---
apiVersion: {{ .api | default "resource.k8s.io/v1" }}
kind: DeviceClass
metadata:
  name: {{ .name }}
spec:
  selectors:
    - cel:
        expression: >-
          device.driver == '{{ .driver }}' && device.attributes['{{ .driver }}'].type == '{{ .type }}'{{ .more | default "" }}
{{- with .extended }}
  extendedResourceName: {{ . }}
{{- end }}
{{- end }}
{{- if .Values.resources.computeDomains.enabled }}
{{- $domain := dict "api" .Values.resourceApiVersion "driver" "compute-domain.nvidia.com" }}
{{- $channel := dict "name" "compute-domain-default-channel.nvidia.com" "type" "channel" }}
{{- $_ := set $channel "more" " && device.attributes['compute-domain.nvidia.com'].id == 0" }}
{{- include "lab.class" (merge $channel $domain) }}
{{- if not (include "lab.hostManaged" .) }}
{{- include "lab.class" (merge (dict "name" "compute-domain-daemon.nvidia.com" "type" "daemon") $domain) }}
{{- end }}
{{- end }}
{{- if .Values.resources.gpus.enabled }}
{{- $gpu := dict "api" .Values.resourceApiVersion "driver" "gpu.nvidia.com" }}
{{- include "lab.class" (merge (dict "name" "gpu.nvidia.com" "type" "gpu" "extended" "nvidia.com/gpu") $gpu) }}
{{- include "lab.class" (merge (dict "name" "mig.nvidia.com" "type" "mig") $gpu) }}
{{- include "lab.class" (merge (dict "name" "vfio.gpu.nvidia.com" "type" "vfio") $gpu) }}
{{- end }}
{{- range list "controller" "kubeletplugin" }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "lab.account" $ }}-{{ . }}
  {{- include "lab.metadata" $ | nindent 2 }}
{{- end }}
