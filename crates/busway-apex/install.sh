#!/bin/sh
# Installs the header, the shared and the static library, and the pkg-config file of busway-apex.
#
#   cargo build -p busway-apex --release
#   crates/busway-apex/install.sh                    under /usr/local
#
# From the environment:
#   PREFIX    where it will be found at run time        (/usr/local)
#   LIBDIR    the libraries' directory                  ($PREFIX/lib)
#   DESTDIR   put before every path, for packages       (nothing)
#   BUILD     directory with the built libraries        (target/release of the workspace)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
PREFIX=${PREFIX:-/usr/local}
LIBDIR=${LIBDIR:-$PREFIX/lib}
DESTDIR=${DESTDIR:-}
BUILD=${BUILD:-${CARGO_TARGET_DIR:-$here/../../target}/release}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -n 1)
# What the static library needs beside itself: `cargo rustc -p busway-apex --release -- --print native-static-libs`.
private_libs='-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc'

for library in libbusway_apex.so libbusway_apex.a; do
    if [ ! -f "$BUILD/$library" ]; then
        echo "$BUILD/$library is missing: run cargo build -p busway-apex --release, or set BUILD" >&2
        exit 1
    fi
done

install -d "$DESTDIR$PREFIX/include/busway" "$DESTDIR$LIBDIR/pkgconfig"
install -m 644 "$here/include/busway/apex.h" "$DESTDIR$PREFIX/include/busway/apex.h"
install -m 644 "$BUILD/libbusway_apex.a" "$DESTDIR$LIBDIR/libbusway_apex.a"
install -m 755 "$BUILD/libbusway_apex.so" "$DESTDIR$LIBDIR/libbusway_apex.so.$version"
ln -sf "libbusway_apex.so.$version" "$DESTDIR$LIBDIR/libbusway_apex.so.0"
ln -sf libbusway_apex.so.0 "$DESTDIR$LIBDIR/libbusway_apex.so"
sed -e "s|@PREFIX@|$PREFIX|" -e "s|@LIBDIR@|$LIBDIR|" -e "s|@VERSION@|$version|" -e "s|@PRIVATE_LIBS@|$private_libs|" \
    "$here/busway-apex.pc.in" > "$DESTDIR$LIBDIR/pkgconfig/busway-apex.pc"
chmod 644 "$DESTDIR$LIBDIR/pkgconfig/busway-apex.pc"
