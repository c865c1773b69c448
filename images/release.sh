#!/usr/bin/env bash
# Pushes images and prints the line `release` of an environment's settings: NAME:TAG@DIGEST, as the registry has them.
# release.sh PREFIX:TAG NAME...      PUSH_OPTIONS are buildah's or docker's own
set -euo pipefail
prefix=${1%:*} tag=${1##*:}
shift
release=
for name in "$@"; do
  image="$prefix-$name:$tag"
  if command -v buildah >/dev/null; then
    digest=$(mktemp)
    # shellcheck disable=SC2086
    buildah push --quiet ${PUSH_OPTIONS:-} --digestfile "$digest" "$image" >&2
    found=$(cat "$digest")
    rm "$digest"
  else
    # shellcheck disable=SC2086
    docker push --quiet ${PUSH_OPTIONS:-} "$image" >&2
    found=$(docker image inspect --format '{{index .RepoDigests 0}}' "$image")
    found=${found#*@}
  fi
  release+=" $name:$tag@$found"
done
echo "release:$release"
