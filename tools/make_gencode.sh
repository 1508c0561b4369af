#!/bin/sh
# Regenerates the modules of summary.proto and digest.proto, *_pb2.py and .pyi, in a throw-away environment.
# grpcio-tools 1.75.1 carries protoc 31.1: its gencode asks for protobuf >= 6.31.1 and loads on all of 6.x and 7.x,
# which is TensorBoard's own range. A newer protoc would shut the older half out.
set -eu
cd "$(dirname "$0")/.."
env_dir=$(mktemp -d)
trap 'rm -rf "$env_dir"' EXIT
python3 -m venv "$env_dir"
"$env_dir/bin/pip" -q install "grpcio-tools==1.75.1"
for message in compile_log/summary job/digest/digest; do
  "$env_dir/bin/python" -m grpc_tools.protoc -I. --python_out=. --pyi_out=. "tb_torchcompile_plugin/$message.proto"
  # The stubs of protobuf itself are not installed everywhere: mypy then takes its messages for Any.
  sed -i '1i # mypy: ignore-errors' "tb_torchcompile_plugin/${message}_pb2.pyi"
done
