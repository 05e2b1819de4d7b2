{{- /*
Copyright (c) 2026, rackscale.nvlink contributors
GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
*/ -}}
{{- $name := include "lab.name" . }}{{ $namespace := include "lab.namespace" . }}{{ $account := include "lab.account" . | trim }}
{{- if .Values.serviceAccount.create }}
{{- range list "controller" "kubeletplugin" }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $account }}-{{ . }}
  namespace: {{ $namespace }}
  labels:
    {{- include "lab.labels" $ | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}-clusterrole-{{ . }}
rules:
  - apiGroups: [""]
    resources: [nodes]
    verbs: [get, list, watch, update, patch]
  - apiGroups: [resource.nvidia.com]
    resources: [computedomains, computedomains/status]
    verbs: [get, list, watch, update]
  - apiGroups: [resource.k8s.io]
    resources: [resourceclaims, resourceclaimtemplates, resourceslices]
    verbs: [get, list, watch, create, update, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}-clusterrole-binding-{{ . }}{{ if eq . "controller" }}-{{ $namespace }}{{ end }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}-clusterrole-{{ . }}}
subjects:
  - {kind: ServiceAccount, name: {{ $account }}-{{ . }}, namespace: {{ $namespace }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}-role-{{ . }}
  namespace: {{ $namespace }}
rules:
  - apiGroups: [resource.nvidia.com]
    resources: [computedomaincliques]
    verbs: [get, list, watch, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}-role-binding-{{ . }}
  namespace: {{ $namespace }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}-role-{{ . }}}
subjects:
  - {kind: ServiceAccount, name: {{ $account }}-{{ . }}, namespace: {{ $namespace }}}
{{- end }}
{{- if and .Values.resources.computeDomains.enabled (not (include "lab.hostManaged" .)) }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: compute-domain-daemon-service-account
  namespace: {{ $namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: compute-domain-daemon-role
rules:
  - apiGroups: [resource.nvidia.com]
    resources: [computedomains, computedomains/status, computedomaincliques]
    verbs: [get, list, watch, update, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: compute-domain-daemon-role-binding
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: compute-domain-daemon-role}
subjects:
  - {kind: ServiceAccount, name: compute-domain-daemon-service-account, namespace: {{ $namespace }}}
{{- end }}
{{- end }}
