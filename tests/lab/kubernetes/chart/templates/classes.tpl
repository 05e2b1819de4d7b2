{{- /*
Copyright (c) 2026, rackscale.nvlink contributors
GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
*/ -}}
{{- define "lab.class" -}}
{{- if has .name .wanted }}
---
apiVersion: {{ .api }}
kind: DeviceClass
metadata:
  name: {{ .name }}
spec:
  selectors:
    - cel:
        expression: >-
          device.driver == '{{ .driver }}' && device.attributes['{{ .driver }}'].type == '{{ .type }}'{{ .more | default "" }}
{{- if and .extended (eq .api "resource.k8s.io/v1") }}
  extendedResourceName: {{ .extended }}
{{- end }}
{{- end }}
{{- end }}
{{- $api := include "lab.api" . }}
{{- $wanted := list }}
{{- if .Values.resources.computeDomains.enabled }}
{{- $wanted = append $wanted "compute-domain-default-channel.nvidia.com" }}
{{- if not (include "lab.hostManaged" .) }}{{ $wanted = append $wanted "compute-domain-daemon.nvidia.com" }}{{ end }}
{{- end }}
{{- if .Values.resources.gpus.enabled }}
{{- $wanted = concat $wanted (list "gpu.nvidia.com" "mig.nvidia.com" "vfio.gpu.nvidia.com") }}
{{- end }}
{{- $domain := dict "api" $api "wanted" $wanted "driver" "compute-domain.nvidia.com" }}
{{- $gpu := dict "api" $api "wanted" $wanted "driver" "gpu.nvidia.com" }}
{{- $channel := dict "name" "compute-domain-default-channel.nvidia.com" "type" "channel" }}
{{- $_ := set $channel "more" " && device.attributes['compute-domain.nvidia.com'].id == 0" }}
{{- include "lab.class" (merge $channel $domain) }}
{{- include "lab.class" (merge (dict "name" "compute-domain-daemon.nvidia.com" "type" "daemon") $domain) }}
{{- include "lab.class" (merge (dict "name" "gpu.nvidia.com" "type" "gpu" "extended" "nvidia.com/gpu") $gpu) }}
{{- include "lab.class" (merge (dict "name" "mig.nvidia.com" "type" "mig") $gpu) }}
{{- include "lab.class" (merge (dict "name" "vfio.gpu.nvidia.com" "type" "vfio") $gpu) }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: resourceslices-policy-{{ include "lab.name" . }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [resource.k8s.io]
        apiVersions: [v1, v1beta1, v1beta2]
        operations: [CREATE, UPDATE, DELETE]
        resources: [resourceslices]
  matchConditions:
    - name: isRestrictedUser
      expression: request.userInfo.username == "system:serviceaccount:{{ include "lab.namespace" . }}:{{ include "lab.account" . | trim }}"
  validations:
    - expression: "false"
      message: a plugin may not change slices from elsewhere
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: resourceslices-policy-{{ include "lab.name" . }}
spec:
  policyName: resourceslices-policy-{{ include "lab.name" . }}
  validationActions: [Deny]
