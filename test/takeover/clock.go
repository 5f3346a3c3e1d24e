package takeover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// clockVariable is the environment variable with the path of the file that sets the clock of a process.
const clockVariable = "KEELSON_TEST_CLOCK"

// Clocks reports whether the servers get clocks that the tests can set (KEELSON_CLOCKS=1). The standard library is changed for that, so
// everything is compiled anew the first time, which takes minutes.
func Clocks() bool { return os.Getenv("KEELSON_CLOCKS") != "" }

// Build builds the server in a directory, with a clock that can be set if Clocks. root is the root of the repository.
func Build(dir, root string) (binary string, err error) {
	binary = filepath.Join(dir, "keelson")
	arguments := []string{"build", "-buildvcs=false", "-o", binary}
	if Clocks() {
		overlay, err := clockOverlay(dir)
		if err != nil {
			return "", err
		}
		arguments = append(arguments, "-overlay", overlay)
	}
	build := exec.Command("go", append(arguments, "./cmd/keelson")...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
}

// clockOverlay writes the file for `go build -overlay` that adds an offset to the wall clock of package time. The monotonic clock stays
// as it is, as that of a machine does whose clock is set.
func clockOverlay(dir string) (path string, err error) {
	original := filepath.Join(runtime.GOROOT(), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	const begin = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if !bytes.Contains(source, []byte(begin)) {
		return "", errors.New("package time of this Go has another function Now: correct test/takeover/clock.go")
	}
	changed := strings.Replace(string(source), begin, begin+"\tsec += clockOffset(mono)\n", 1)
	offset := filepath.Join(runtime.GOROOT(), "src", "time", "clockoffset.go")
	replace := map[string]string{original: filepath.Join(dir, "time.go"), offset: filepath.Join(dir, "clockoffset.go")}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, errors.Join(
		os.WriteFile(replace[original], []byte(changed), 0o600),
		os.WriteFile(replace[offset], []byte(fmt.Sprintf(offsetSource, clockVariable)), 0o600),
		os.WriteFile(path, overlay, 0o600),
	)
}

// offsetSource is the file of package time that reads the offset in seconds, at most every 20 ms.
const offsetSource = `package time

import (
	"sync/atomic"
	"syscall"
)

var clockFile, _ = syscall.Getenv(%q)

var clockRead, clockSeconds atomic.Int64

func clockOffset(mono int64) int64 {
	last := clockRead.Load()
	if clockFile == "" || mono-last < 20_000_000 || !clockRead.CompareAndSwap(last, mono) {
		return clockSeconds.Load()
	}
	fd, err := syscall.Open(clockFile, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return clockSeconds.Load()
	}
	defer syscall.Close(fd)
	var b [20]byte
	n, _ := syscall.Read(fd, b[:])
	seconds, sign := int64(0), int64(1)
	for _, c := range b[:max(n, 0)] {
		switch {
		case c == '-':
			sign = -1
		case c >= '0' && c <= '9':
			seconds = 10*seconds + int64(c-'0')
		}
	}
	clockSeconds.Store(sign * seconds)
	return sign * seconds
}
`

// setClock sets the clock of the processes that read a file, as an offset from the real time.
func setClock(file string, offset time.Duration) error {
	next := file + ".next"
	return errors.Join(os.WriteFile(next, fmt.Append(nil, int64(offset/time.Second)), 0o600), os.Rename(next, file))
}
