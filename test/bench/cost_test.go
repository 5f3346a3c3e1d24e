package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLayers checks which layer the stacks of some samples belong to, the innermost function first.
func TestLayers(t *testing.T) {
	const attempt = module + stepPrefix
	for _, c := range []struct {
		stack []string
		want  string
	}{
		{[]string{"runtime.mallocgc", module + "internal/resource/core.validatePod", attempt + "faults", attempt + "validate", attempt + "run"},
			"write: validate"},
		{[]string{"runtime.memmove", attempt + "run", module + "internal/api/write.(*Pipeline).Do"}, "write: between the steps"},
		{[]string{"syscall.Write", "crypto/tls.(*Conn).Write", module + filterPrefix + "deadline.(*guard).run"}, "transport"},
		{[]string{"runtime.selectgo", module + filterPrefix + "deadline.(*guard).run", "net/http.HandlerFunc.ServeHTTP"},
			"filter: deadline"},
		{[]string{"runtime.scanobject", "runtime.gcBgMarkWorker"}, "collector"},
		{[]string{pebblePackage + "/sstable.(*RawColumnWriter).Add", pebblePackage + ".(*DB).runCompaction"},
			"storage: flush and compaction"},
		{[]string{module + "internal/storage/embedded.(*planner).planTxn", module + "internal/storage/embedded.(*pipeline).build"},
			"storage: plan"},
		{[]string{"runtime.memmove", module + "internal/object/registry.(*jsonEncoding).preview", attempt + "commit", attempt + "run"},
			"encode the response"},
		{[]string{module + "internal/object/registry.(*Resource).Insert", attempt + "commit", attempt + "run"}, "write: commit"},
		{[]string{"main.main"}, "other"},
	} {
		if got := layerOf(c.stack); got != c.want {
			t.Errorf("%q: layer %q, want %q", c.stack, got, c.want)
		}
	}
}

// TestReadProfile reads a profile that this process takes of itself.
func TestReadProfile(t *testing.T) {
	var raw bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&raw, 0); err != nil {
		t.Fatal(err)
	}
	stacks, err := readProfile(raw.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	found := slices.ContainsFunc(stacks, func(s profileStack) bool {
		return s.samples > 0 && slices.ContainsFunc(s.functions, func(name string) bool { return strings.HasSuffix(name, ".TestReadProfile") })
	})
	if !found {
		t.Errorf("no stack of this test in %v", stacks)
	}
	for _, broken := range [][]byte{nil, []byte("text"), raw.Bytes()[:raw.Len()/2]} {
		if _, err := readProfile(broken); err == nil {
			t.Errorf("%d bytes of a profile are accepted", len(broken))
		}
	}
}

func TestDearerRows(t *testing.T) {
	side := func(times ...float64) *costSide {
		return &costSide{Rows: map[string]costFigure{"pod-create": {Server: times}}}
	}
	for _, c := range []struct {
		a, b   *costSide
		dearer bool
	}{
		{side(100, 104, 103), side(100, 101, 100), false},
		{side(110, 112, 111), side(100, 101, 100), true},
		{side(100, 112, 111), side(100, 101, 100), false}, // its best round is as good: the others were disturbed
		{side(90, 91, 92), side(100, 101, 100), false},
		{side(), side(100), false},
	} {
		err := dearerRows(c.a, c.b)
		if (err != nil) != c.dearer {
			t.Errorf("%v against %v: %v", c.a.Rows, c.b.Rows, err)
		} else if err != nil && !strings.Contains(err.Error(), "pod-create") {
			t.Errorf("%v does not name the row", err)
		}
	}
}

// TestFloorOfWrites sends the bodies of the rows to the floor server, which has to decode and encode each.
func TestFloorOfWrites(t *testing.T) {
	floor, err := startFloor(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer floor.stop()
	c, err := dial(&floor.target)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	send := func(method, path string, body []byte) string {
		t.Helper()
		a, err := c.do(&request{method: method, path: path, contentType: jsonType, body: body}, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if a.status != 200 {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		return string(a.body)
	}
	for kind, body := range map[string][]byte{
		"Pod": podBody(1), "ConfigMap": configMap("c", 100), "Event": scheduledEvent(1), "Lease": lease(1, 1),
		"Deployment": deployment("d", 1), "Thing": customObject("Thing00000", 1),
	} {
		send("PUT", "/prototype?type="+kind, body)
		if got := send("POST", "/create?type="+kind, body); !strings.Contains(got, `"metadata":{`) {
			t.Errorf("%s: create answers %.200s", kind, got)
		}
	}
	if got := send("PATCH", "/patch?type=Pod", statusPatch(7)); !strings.Contains(got, `"restartCount":7`) {
		t.Errorf("the patch is not in %.3000s", got)
	}
	if got := send("POST", "/post?type=Pod&body=Binding", []byte(`{"target":{"name":"n"}}`)); !strings.Contains(got, "Success") {
		t.Errorf("the binding is answered %s", got)
	}
}

// TestPlot checks that the picture is XML and has the rows.
func TestPlot(t *testing.T) {
	sides := []*costSide{
		{Command: "/a/keelson serve", Rows: map[string]costFigure{"pod-create": {Server: []float64{200}, Floor: []float64{100}}}},
		{Command: "/b/kube-apiserver", Rows: map[string]costFigure{"pod-create": {Server: []float64{1500}, Floor: []float64{101}}}},
	}
	picture := plotCosts("a <title>", sides)
	for decoder := xml.NewDecoder(bytes.NewReader(picture)); ; {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
	}
	for _, want := range []string{"a &lt;title&gt;", "kube-apiserver", "create a Pod", ">1,500 us<"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("no %q in\n%s", want, picture)
		}
	}
	table := costTable(&options{rounds: 1, pods: 10}, sides)
	for _, want := range []string{"1.98 x", "200 to 200", "1,500 to 1,500", "15 x", "7.50 x"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}

// TestCostRefuses checks the flags that belong to --cost.
func TestCostRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--start", "true", "--layers"},
		{"--start", "true", "--plot", filepath.Join(os.TempDir(), "x.svg")},
		{"--start", "true", "--reference", "true"},
		{"--server", "https://127.0.0.1", "--cost"},
	} {
		if err := command(context.Background(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

func TestProgramName(t *testing.T) {
	for command, want := range map[string]string{
		"": "", "/a/keelson serve --data-dir {dir}": "keelson",
		"bash test/bench/kube-apiserver.sh {dir} {port}": "kube-apiserver", "./start.sh": "start",
	} {
		if got := programName(command); got != want {
			t.Errorf("%q is %q, want %q", command, got, want)
		}
	}
}
