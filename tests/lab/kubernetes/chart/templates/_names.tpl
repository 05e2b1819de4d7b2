{{- /*
Copyright (c) 2026, rackscale.nvlink contributors
GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
*/ -}}
{{- define "lab.name" -}}{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}{{- end }}
{{- define "lab.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else if contains (include "lab.name" .) .Release.Name }}{{ .Release.Name }}
{{- else }}{{ .Release.Name }}-{{ include "lab.name" . }}{{ end }}
{{- end }}
{{- define "lab.namespace" -}}{{ .Values.namespaceOverride | default .Release.Namespace }}{{- end }}
{{- define "lab.account" -}}
{{ .Values.serviceAccount.name | default (printf "%s-service-account" (include "lab.fullname" .)) }}
{{- end }}
{{- define "lab.labels" -}}
helm.sh/chart: {{ include "lab.name" . }}-{{ .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/name: {{ include "lab.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "lab.selector" -}}{{ include "lab.name" . }}-component{{- end }}
{{- define "lab.image" -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}{{- end }}
{{- define "lab.api" -}}
{{- if .Values.resourceApiVersion }}{{ .Values.resourceApiVersion }}
{{- else if .Capabilities.APIVersions.Has "resource.k8s.io/v1" }}resource.k8s.io/v1
{{- else if .Capabilities.APIVersions.Has "resource.k8s.io/v1beta2" }}resource.k8s.io/v1beta2
{{- else if .Capabilities.APIVersions.Has "resource.k8s.io/v1beta1" }}resource.k8s.io/v1beta1
{{- else }}{{ fail "the cluster serves no version of resource.k8s.io; set resourceApiVersion" }}{{ end }}
{{- end }}
{{- define "lab.hostManaged" -}}{{ if eq .Values.resources.computeDomains.imex.mode "hostManaged" }}yes{{ end }}{{- end }}
{{- define "lab.gates" -}}{{ range $name, $on := .Values.featureGates }}{{ $name }}={{ $on }},{{ end }}{{- end }}
