package filewatch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// maxFile is the largest file that ReadFile reads, in bytes.
const maxFile = 64 << 20

// errNotRegular is the error for pipes, sockets and devices.
var errNotRegular = errors.New("it is not a regular file")

// ReadFile returns the content of a file, as os.ReadFile does. It never waits for another program and never fills the
// memory: pipes, sockets, devices and files over 64 MiB are errors.
func ReadFile(path string) ([]byte, error) {
	// Without O_NONBLOCK, opening a named pipe waits until another program writes to it.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() { // reading a directory returns the right error
		return nil, &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	// The limit counts the bytes that are read, because the file may grow meanwhile.
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it has more than %d bytes", maxFile)}
	}
	if err != nil {
		return nil, err
	}
	return content, nil
}
