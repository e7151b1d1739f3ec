#!/bin/sh
# Loads the image into Docker and chooses it. Then, in this folder: docker compose run --rm train
set -eu
cd "$(dirname "$0")"
image='{{ image }}'
tar -C image -cf - . | docker load --quiet
if ! docker image inspect "$image" > /dev/null 2>&1; then
    echo "load: Docker has the image, but does not know it by its digest, $image" >&2
    echo "usual cause: Docker's classic image store forgets the digests of what it loads" >&2
    echo 'next: in /etc/docker/daemon.json set {"features": {"containerd-snapshotter": true}}, restart Docker' >&2
    exit 4
fi
# A container gets these folders. Through a link, it would get any other.
for folder in runs {{ cache }} {{ cache }}/hub {{ cache }}/datasets; do
    if [ -L "$folder" ]; then
        echo "load: $PWD/$folder is a link, and a container would get the folder behind it" >&2
        echo "usual cause: somebody changed this folder after it was signed" >&2
        echo "next: rm '$folder' in $PWD, and run load again" >&2
        exit 6
    fi
done
mkdir -p runs {{ cache }}/hub {{ cache }}/datasets
owner="$(id -u):$(id -g)"
if [ "$(id -u)" = 0 ]; then owner='{{ nobody }}:{{ nobody }}'; chown "$owner" runs {{ cache }}/hub {{ cache }}/datasets; fi
# Of the host's memory all but {{ spared }} MiB, or three quarters, whichever is more.
memory=$(awk -v spared='{{ spared }}' \
    '/^MemTotal:/ { t = int($2 / 1024); a = t - spared; b = int(t * 3 / 4); print (a > b ? a : b) "m" }' /proc/meminfo)
cat > .env.partial <<END
VETTED_IMAGE=$image
VETTED_STACK={{ stack }}
VETTED_CERTIFICATES=./{{ judged }}
VETTED_USER=$owner
COMPOSE_FILE={{ files }}
VETTED_CACHE=./{{ cache }}
VETTED_MEMORY=$memory
END
mv .env.partial .env
echo "$image"
echo "  written to .env; next: docker compose run --rm train"
