#!/bin/sh
# An HAProxy that never comes to an end.
exec sleep 600
