package listener

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
)

// ListenUnix makes a Unix domain socket that only the user of the process can connect to. It replaces one that a killed
// process has left behind. The file is removed with the listener.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
