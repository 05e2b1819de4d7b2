{{- /*
Copyright (c) 2026, rackscale.nvlink contributors
GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
*/ -}}
{{- if .Values.namespace }}
{{- fail (printf "Value 'namespace' set to %v; it is no longer supported, use --namespace" .Values.namespace) }}
{{- end }}
{{- if and (eq (include "lab.namespace" .) "default") (eq .Values.namespaceOverride "") (not .Values.allowDefaultNamespace) }}
{{- fail "Running in the 'default' namespace is not recommended; set 'allowDefaultNamespace=true' or use --namespace" }}
{{- end }}
{{- if and .Values.resources.gpus.enabled (not .Values.gpuResourcesEnabledOverride) }}
{{- fail "'resources.gpus.enabled=true' collides with the device plugin; set 'gpuResourcesEnabledOverride=true' too" }}
{{- end }}
{{- if .Values.nvidiaCtkPath }}
{{- fail "Setting a user-defined nvidiaCtkPath is no longer supported" }}
{{- end }}
{{- with .Values.webhook }}{{ if .enabled }}
{{- if not (has .tls.mode (list "cert-manager" "secret")) }}
{{- fail (printf "Invalid webhook TLS mode: %s; it must be either 'cert-manager' or 'secret'" .tls.mode) }}
{{- end }}
{{- if and (eq .tls.mode "secret") (not .tls.secret.name) }}{{ fail "webhook.tls.secret.name is required with mode 'secret'" }}{{ end }}
{{- if eq .tls.mode "cert-manager" }}
{{- if not (has .tls.certManager.issuerType (list "selfsigned" "clusterissuer" "issuer")) }}
{{- fail (printf "Invalid webhook issuerType: %s" .tls.certManager.issuerType) }}
{{- end }}
{{- if and (ne .tls.certManager.issuerType "selfsigned") (not .tls.certManager.issuerName) }}
{{- fail "webhook.tls.certManager.issuerName is required with this issuerType" }}
{{- end }}
{{- end }}
{{- end }}{{ end }}
{{- if .Values.resources.computeDomains.enabled }}
{{- with .Values.resources.computeDomains.imex }}
{{- if not (has .mode (list "driverManaged" "hostManaged")) }}
{{- fail (printf "resources.computeDomains.imex.mode=%s: use driverManaged or hostManaged" .mode) }}
{{- end }}
{{- if not (has .isolation (list "" "domain")) }}
{{- fail (printf "resources.computeDomains.imex.isolation=%s is not supported yet" .isolation) }}
{{- end }}
{{- end }}
{{- if and (include "lab.hostManaged" .) (not (get .Values.featureGates "HostManagedIMEXDaemon")) }}
{{- fail "resources.computeDomains.imex.mode=hostManaged requires featureGates.HostManagedIMEXDaemon=true" }}
{{- end }}
{{- end }}
