#!/usr/bin/env bash
# Makes the certificates of the tests of TLS anew, with OpenSSL 3: valid from 2020 to 2120, so that the tests need neither OpenSSL
# nor the day's date. The keys protect nothing.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/config" <<END
[ca]
default_ca = it
[it]
database = $work/index
serial = $work/serial
new_certs_dir = $work
default_md = sha256
policy = policy
unique_subject = no
[policy]
commonName = supplied
END
: >"$work/index"
echo 01 >"$work/serial"

# sign NAME AUTHORITY END EXTENSIONS...: a certificate of a new key
sign() {
  local name=$1 authority=$2 end=$3
  shift 3
  printf '%s\n' "$@" >"$work/extensions"
  local own=(-cert "$authority.pem" -keyfile "$work/$authority.key")
  local key=$name.key
  if [ "$name" = "$authority" ]; then
    key=$work/$name.key
    own=(-selfsign -keyfile "$key")
  fi
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -config <(echo '[req]
distinguished_name = dn
[dn]') -subj "/CN=$name" -keyout "$key" -out "$work/request"
  openssl ca -batch -notext -config "$work/config" "${own[@]}" -startdate 20200101000000Z -enddate "$end" \
    -extfile "$work/extensions" -in "$work/request" -out "$name.pem"
}

for authority in ca other-ca; do
  sign $authority $authority 21200101000000Z basicConstraints=critical,CA:TRUE keyUsage=critical,keyCertSign
done
leaf=(basicConstraints=critical,CA:FALSE extendedKeyUsage=serverAuth,clientAuth)
for node in n1 n2 n3; do
  sign $node ca 21200101000000Z "${leaf[@]}" "subjectAltName=DNS:$node,DNS:seatrial"
done
sign client ca 21200101000000Z "${leaf[@]}"
sign stranger other-ca 21200101000000Z "${leaf[@]}"
sign expired ca 20210101000000Z "${leaf[@]}" subjectAltName=DNS:n1,DNS:seatrial
chmod 600 ./*.key
