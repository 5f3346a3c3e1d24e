package hostile

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// TestFullDisk writes until a small disk is full. Then writes must be answered 507, and reads and deletions must
// succeed; when there is space again, writes must succeed. It needs root to mount a disk.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	disk := filepath.Join(dir, "data")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=200m"); err != nil {
		t.Skipf("no disk of 200 MB can be mounted here: %v", err)
	}
	t.Cleanup(func() { // runs after the server has ended
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	p := startServer(t, "history", dir)
	admin := newClient(t, p.url, adminToken, false)
	defer admin.close()
	const path = "/api/v1/namespaces/default/configmaps"
	rng := rand.NewChaCha8([32]byte{})
	write := func(i int) *answer {
		text := make([]byte, 600<<10)
		_, _ = rng.Read(text) // never fails
		object := configMap(fmt.Sprintf("c-%d", i), 0)
		object["data"].(map[string]any)["text"] = base64.StdEncoding.EncodeToString(text)
		return admin.send(http.MethodPost, path, jsonType, encode(object))
	}
	written := 0
	for ; written < 1000; written++ {
		if got := write(written).want(
			t, http.StatusCreated, http.StatusInsufficientStorage,
		); got.status != http.StatusCreated {
			if got.reason() == "" {
				t.Errorf("the answer is no Status with a reason: %s", shorten(string(got.body)))
			}
			break
		}
	}
	if written < 50 || written == 1000 {
		t.Fatalf("the disk was full after %d objects of 800 KB", written)
	}
	for i := range written {
		admin.get(fmt.Sprintf("%s/c-%d", path, i)).want(t, http.StatusOK)
	}
	for i := range written - 5 {
		admin.send(http.MethodDelete, fmt.Sprintf("%s/c-%d", path, i), "", nil).want(t, http.StatusOK)
	}
	wait.NoError(t, "writes to be taken again", func() error {
		if got := write(1000); got.status != http.StatusCreated {
			return fmt.Errorf("%d %s", got.status, shorten(string(got.body)))
		}
		return nil
	})
	admin.get(fmt.Sprintf("%s/c-%d", path, written-1)).want(t, http.StatusOK)
}
