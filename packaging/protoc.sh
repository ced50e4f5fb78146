#!/bin/sh
# Succeeds if the etcd engine can be built here: with protoc, or what PROTOC names, and with the
# definitions that belong to it (packages protobuf-compiler and libprotobuf-dev).
set -eu
protoc=${PROTOC:-protoc}
command -v "$protoc" > /dev/null || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'syntax = "proto3"; import "google/protobuf/descriptor.proto";' > "$work/probe.proto"
"$protoc" ${PROTOC_INCLUDE:+"-I$PROTOC_INCLUDE"} "-I$work" "-o$work/probe" "$work/probe.proto" > "$work/log" 2>&1
