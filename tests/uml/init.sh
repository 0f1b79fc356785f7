#!/bin/sh
# The first process of the guest: mounts what it needs and goes on in Python. The root is the host's, read-only.
# Arguments: PYTHON TOP MODULE CONFIG
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
# Of the host only /dev, /proc and /sys are hidden, so that its folders can be anywhere else.
mount -t proc proc /proc && mount -t sysfs sys /sys && mkdir /dev/tmp || echo "guest: cannot mount proc and sysfs"
# From here on the console is for what the guest's program says.
dmesg -n 1
cd "$2" || echo "guest: no $2"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$2:$2/hooks/python" TMPDIR=/dev/tmp "$1" -m "$3" "$4" 2>&1 || echo "guest: Python ended with $?"
echo "guest: over"
echo o >/proc/sysrq-trigger
sleep 60
