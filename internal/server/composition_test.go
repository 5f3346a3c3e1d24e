package server

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/controller/bootstrap"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/background"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// sources parses the Go files of this package and of the packages below it, except tests and servertest. It
// returns them by path.
func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "servertest" {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files[path], err = parser.ParseFile(token.NewFileSet(), path, nil, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestStructsAreSmall checks that no struct has more than most fields.
func TestStructsAreSmall(t *testing.T) {
	const most = 15
	for path, file := range sources(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			fields := 0
			for _, f := range s.Fields.List {
				fields += max(len(f.Names), 1)
			}
			if fields > most {
				t.Errorf("%s: %s has %d fields, at most %d are allowed", path, spec.Name, fields, most)
			}
			return true
		})
	}
}

// TestBackendIsReadOnce checks that the name of the backend is used only to choose the store. All other code asks
// the store by its optional interfaces.
func TestBackendIsReadOnce(t *testing.T) {
	allowed := []string{
		"settings.go validateStorage", "stores/stores.go choose",
		"fork.go Start", // compares it with that of the snapshot
	}
	for path, file := range sources(t) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok || s.Sel.Name != "Backend" {
					return true
				}
				of, ok := s.X.(*ast.SelectorExpr)
				if ok && of.Sel.Name == "Storage" && !slices.Contains(allowed, path+" "+f.Name.Name) {
					t.Errorf("%s: %s reads Storage.Backend", path, f.Name.Name)
				}
				return true
			})
		}
	}
}

// TestGoroutinesHaveNames checks that all goroutines besides requests are started by internal/server/background. The test has a
// list of exceptions.
func TestGoroutinesHaveNames(t *testing.T) {
	allowed := []string{
		"background/background.go Go", // the runners
		"frontend.go serve",           // ends with the listener
		"frontend.go drain",           // its context limits its time
		"server.go inParallel",        // inParallel waits for it
		"offsite/standby.go Run",      // before there is a server; ends with Run
		"offsite/offsite.go Finish",   // its context limits its time
		"members/join.go joinOnce",    // joinOnce waits for it
		"httpconn/batch.go batch",     // ends with the writes of a connection, or when that is closed
	}
	for path, file := range sources(t) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if _, ok := n.(*ast.GoStmt); ok && !slices.Contains(allowed, path+" "+f.Name.Name) {
					t.Errorf("%s: %s starts a goroutine", path, f.Name.Name)
				}
				return true
			})
		}
	}
}

// plainStore is a store that does not implement storage.Exclusive.
type plainStore struct{ storage.Store }

// TestReconcilerAsksTheStore checks that a server finds the other servers by leases in the store, if others may
// write to that store.
func TestReconcilerAsksTheStore(t *testing.T) {
	store, err := embedded.Open(embedded.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // nothing was written
	control := config.Default().Network.ControlPlane
	o := controlPlaneOptions{
		config: &control, store: store, address: net.IPv4(192, 0, 2, 1), log: slog.New(slog.DiscardHandler),
	}
	if r, ok := o.reconciler().(bootstrap.SingleServer); !ok {
		t.Errorf("a store of its own: %T", r)
	}
	o.store = plainStore{store}
	if r, ok := o.reconciler().(*bootstrap.EtcdLeases); !ok {
		t.Errorf("a store that others may write to: %T", r)
	}
}

// TestStopWaitsForWork checks that the store is still open for background work that ends late.
func TestStopWaitsForWork(t *testing.T) {
	s := start(t, testConfig(t))
	ended := make(chan error, 1)
	s.work.Go("slow", func(ctx context.Context) error {
		<-ctx.Done()
		// In this time, a Stop that does not wait would close the store. If Stop waits, it does nothing visible to
		// wait for.
		time.Sleep(50 * time.Millisecond)
		_, err := s.stores.Main.Revision(context.Background())
		ended <- err
		return nil
	})
	stop(t, s)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the store was closed before: %v", err)
		}
	default:
		t.Error("Stop returned before the work had ended")
	}
}

// TestChecksShowFailedWork checks that the health check of a controller fails while the controller waits for its
// next start.
func TestChecksShowFailedWork(t *testing.T) {
	s := &starting{Server: &Server{work: background.New(slog.New(slog.DiscardHandler))}}
	defer s.endWork()
	probe := running(s.work, "controller", func(context.Context) error { return nil })
	if err := probe(t.Context()); err == nil {
		t.Error("a controller that was never started is well")
	}
	s.work.Go("controller", func(context.Context) error { panic("boom") })
	wait.Seen(t, "the check to fail with the panic", func() (bool, string) {
		err := probe(t.Context())
		return err != nil && strings.Contains(err.Error(), "boom"), fmt.Sprint(err)
	})
}
