#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The guest's first process, run by busybox from the initial file system, which has besides it
# /modules with the file `order`, /shares (one `MODE TAG PATH` a line) and nothing else. It lays the
# host's files out, runs /run/rxe-guest/command among them, and writes its status to `status` there.
b=/bin/busybox
new=/new
output=/dev/vport0p1

give_up() {
    echo "guest: $*"
    $b poweroff -f
}

# share MODE TAG PATH [CACHE]
share() {
    $b mkdir -p "$3" 2>/dev/null
    $b mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$1,cache=$4" "$2" "$3" ||
        give_up "cannot mount $2 on $3"
}

# What the command left behind would hold the output open and keep the guest from ending.
end_left_overs() {
    for directory in /proc/[0-9]*; do
        process=${directory#/proc/}
        case $process in 1 | "$printer") continue ;; esac
        name=$($b readlink "$directory/exe") || continue  # a thread of the kernel
        echo "guest: $name was still running at the end"
        $b kill -9 "$process"
    done
}

$b mkdir -p /proc /sys /dev $new
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
while read -r module; do
    $b insmod "/modules/$module" || echo "guest: cannot load $module"
done </modules/order
[ -c $output ] || give_up "there is no $output to write to"

share ro root $new loose
for directory in tmp run var/tmp root; do
    [ -d "$new/$directory" ] && [ ! -L "$new/$directory" ] && $b mount -t tmpfs t "$new/$directory"
done
$b chmod 1777 $new/tmp $new/var/tmp 2>/dev/null
$b mkdir -p $new/run/lock $new/run/netns
$b mount -t proc proc $new/proc
$b mount -t sysfs sysfs $new/sys
$b mount -t devtmpfs dev $new/dev
$b mkdir -p $new/dev/shm $new/dev/pts
$b mount -t tmpfs t $new/dev/shm
$b mount -t devpts p $new/dev/pts
$b ln -sf /proc/self/fd $new/dev/fd
# Only now, because a share may lie in any of these.
while read -r mode tag path; do
    case $mode in ro) cache=loose ;; *) cache=none ;; esac
    [ "$tag" = root ] || share "$mode" "$tag" "$new$path" "$cache"
done </shares
$b hostname rxe-guest

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root TERM=dumb LC_ALL=C.UTF-8
$b mkfifo /output
$b cat /output >$output &
printer=$!
$b chroot $new /bin/bash /run/rxe-guest/command </dev/null >/output 2>&1
status=$?
end_left_overs
wait $printer
echo $status >$new/run/rxe-guest/status
$b sync
$b poweroff -f
