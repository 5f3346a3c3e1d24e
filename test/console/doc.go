// Package console tests the console of Keelson in Chromium. The tests are skipped where there is no Chromium; `make browser`
// installs the one of Debian. They write their screenshots to docs/images/console when KEELSON_SCREENSHOTS is set.
package console
