#!/bin/sh
# Copyright (c) 2026, rackscale.nvlink contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# helm diff upgrade RELEASE CHART [--version=V] [-f=FILE | --values=FILE]: nothing where nothing would change, else what would.
set -eu
release=$2
chart=$3
shift 3
values=/dev/null
version=
for word; do
    case $word in
        -f=* | --values=*) values=${word#*=} ;;
        --version=*) version=$word ;;
    esac
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$HELM_BIN" get manifest "$release" >"$scratch/live"
"$HELM_BIN" template "$release" "$chart" ${version:+"$version"} --values "$values" --skip-crds >"$scratch/wanted"
diff -uB --label live --label wanted "$scratch/live" "$scratch/wanted" || [ $? -eq 1 ]
