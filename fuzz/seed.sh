#!/usr/bin/env bash
# Fills fuzz/corpus with what the samples hold, as a beginning for every target: bash fuzz/seed.sh
set -euo pipefail
cd "$(dirname "$0")"
rm -f corpus/*/seed-* corpus/lines/plain-*

samples=(../samples/*.nmea)

# seed TARGET BYTES: one file per line of stdin, behind the bytes (as printf reads them) that the target takes for its options.
seed() {
    local target=$1 bytes=$2 number line
    mkdir -p "corpus/$target"
    number=$(find "corpus/$target" -name 'seed-*' | wc -l)
    while IFS= read -r line; do
        number=$((number + 1))
        { printf "$bytes"; printf '%s' "$line"; } >"corpus/$target/seed-$number"
    done
}

# Lines in tens, so that parts of messages, TAG lines and clocks meet what they belong to; under several options.
mkdir -p corpus/lines corpus/reader
split -l 10 -a 5 ../samples/diagram.nmea corpus/lines/plain-
for options in '\x00\x00' '\x05\x04' '\x23\x05' '\x0c\x02' '\x20\x07'; do
    for first in $(seq 1 400 19000); do
        { printf "$options"'\x55\x0f\x33\xaa\x01\x80\xff\x5a'; sed -n "$first,$((first + 9))p" ../samples/harbour.nmea; } \
            >"corpus/lines/seed-${options//\\x/}-$first"
    done
done
for packer in cat gzip bzip2 xz zstd; do
    command -v "$packer" >/dev/null || continue
    { printf '\x07'; head -n 12 ../samples/diagram.nmea | "$packer" -c; } >"corpus/reader/seed-$packer" 2>/dev/null ||
        { printf '\x07'; head -n 12 ../samples/diagram.nmea | "$packer"; } >"corpus/reader/seed-$packer"
done

sample() { awk 'NR % 40 == 1' "${samples[@]}"; }
sample | grep -o '^\\[^\\]*\\' | seed tag_block ''
sample | grep -o '^\\[^\\]*\\' | tr -d '\\' | sed 's/^/x/' | seed tag_block ''
sample | grep -o 'VDM,1,1,[^*]*' | cut -d, -f6 | seed payload ''
printf '%s\n' 1700000045 1700000046123 1700000046123456 1550303566167726840 1750955733.123456 | seed unix_time ''
seed line_time '\x00\x60\x3b\xe9\xa5\x60\x97\x17' <<'END'
1452468552.938 
2021-11-01T13:28:05.504 IN 20 Net: '
[2024-07-19 08:45:27.141] 
[20130422T154957.000Z]
20260610 11:00:02.0030
2025-06-09T02:57:08.053Z,AIS,"UDP port:6039","
1471172400151;N;
,d-067,S0000,t000000.00,T00.00338535,r11CSDO1,1272844802
2023/11/14 22:14:08-0330 
END
seed command_line '' <<'END'
90
15m
2h
1d
unbounded
@1700000040
2026-05-01T06:00:00.5+02:00
Europe/Oslo
-03:30
10.5,57.2,12,58.1
170,-10,-170,10
u4pruy
112.8
stdout
csv:windows.csv
file:harbour.nmea
END
grep -ho '\$[A-Z]*\(RMC\|ZDA\),[^*]*' "${samples[@]}" | head -n 20 | cut -c2- | seed clock_sentence '\x00\x00'
printf '%s\n' GPRMC,194913.00,A,5241.99751,N,00517.56393,E,0.012,,010809,,,A GPZDA,072914.00,31,05,2018,-03,00 |
    seed clock_sentence '\x03\x00'
printf '%s\n' 03OtUAv6gEcaoNubBCQ2wO028HW | seed clock_sentence '\x01\x00'
printf '%s\n' PGHP,1,2013,11,12,12,0,0,11,219,,2190067,1,62 | seed clock_sentence '\x02\x00'
printf '%s\n' u4pruyu4p u4pruydqqvj8u4pruydqqvj9 zzzzzzzzzzzz0 | seed cells ''
seed event '\x00' <<'END'
[{"kinesis":{"sequenceNumber":"7","data":"IUFJVkRNLDEsMSwsQSwxM3RmREBAUDFUMG5ORTBRMTJIM1E/dnQwMDAwLDAqMEY=","approximateArrivalTimestamp":1700000045.25},"eventID":"shardId-000000000006:7","eventSourceARN":"a"}]}
[]}
END
seed event '\x01' <<'END'
"sequenceNumber":"7","data":"H4sI","approximateArrivalTimestamp":"2023-11-14T22:14:05Z"
END
sample | seed event '\x02'
mkdir -p corpus/late_file corpus/csv_rows
cat >corpus/late_file/seed-1 <<'END'
{"late_format":1,"run":"r","options":{"window_seconds":60,"slide_seconds":60,"lateness":"120s","precision":6,"types":"1,2,3,18,19"},"targets":["stdout"]}
{"cell":"u4pruy","window_start":0,"event_time":"58","mmsi":265000104,"sog":"6.0","source":{"file":"diagram.nmea","line":50},"nmea":["!AIVDM"]}
{"cell":"u4pruy","window_start":60,"event_time":"61.5","mmsi":265000104,"sog":null,"source":{"shard":"s","sequence_number":"7"},"nmea":[]}
END
cat >corpus/late_file/seed-2 <<'END'
{"cell":"u4pruy","window_start":0,"count":3,"sog_sum":"12.5","sog_missing":1}
{"cell":"u4prux","window_start":-60,"count":3,"sog_sum":12.5}
END
cat >corpus/csv_rows/seed-1 <<'END'
cell,window_start,count,vessels,sog_sum,sog_missing,avg_sog
u4pruy,0,12,4,112.8,0,9.40
u4pruy,2026-05-01T06:00:00Z,1,,0.0,1,
END
