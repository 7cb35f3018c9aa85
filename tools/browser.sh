#!/bin/sh
# Install Chromium for the tests of the page, where that can be done without asking: as root, with apt-get.
# Where it cannot, the tests of the page are skipped.
for name in chromium chromium-browser google-chrome; do
  command -v "$name" > /dev/null && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
  apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium > /dev/null && exit 0
fi
echo "no Chromium, and it cannot be installed here: the tests of the page will be skipped"
