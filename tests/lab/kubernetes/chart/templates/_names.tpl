{{- /*
Copyright (c) 2026, rackscale.nvlink contributors
GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
*/ -}}
{{- define "lab.name" -}}{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}{{- end }}
{{- define "lab.account" -}}
{{- $name := include "lab.name" . }}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- .Values.serviceAccount.name | default (printf "%s-service-account" (.Values.fullnameOverride | default $full)) }}
{{- end }}
{{- define "lab.metadata" -}}
namespace: {{ .Release.Namespace }}
labels:
  helm.sh/chart: {{ include "lab.name" . }}-{{ .Chart.Version }}
{{- end }}
{{- define "lab.selector" -}}{{ include "lab.name" . }}-component{{- end }}
{{- define "lab.image" -}}{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}{{- end }}
{{- define "lab.hostManaged" -}}{{ if eq .Values.resources.computeDomains.imex.mode "hostManaged" }}yes{{ end }}{{- end }}
{{- define "lab.gates" -}}{{ range $name, $on := .Values.featureGates }}{{ $name }}={{ $on }},{{ end }}{{- end }}
