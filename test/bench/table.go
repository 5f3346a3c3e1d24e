package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A unit says how a figure is printed and whether a smaller or a larger figure is better.
type unit int

const (
	perSecond unit = iota
	milliseconds
	megabytes
	kilobytes
	microseconds
	times
)

func (u unit) String() string { return [...]string{"/s", "ms", "MB", "KB", "us", "x"}[u] }

func (u unit) write(v float64) string {
	switch {
	case v == 0:
		return ""
	case u == perSecond:
		return thousands(v) + "/s"
	case v < 10:
		return fmt.Sprintf("%.2f %v", v, u)
	case v < 100:
		return fmt.Sprintf("%.1f %v", v, u)
	}
	return thousands(v) + " " + u.String()
}

// thousands returns a number without a fraction, with separators.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// expectation describes a row, with the figure to compare it with.
type expectation struct {
	key, name string
	unit      unit
	// kubeAPIServer is the figure of kube-apiserver 1.36.3 with etcd 3.7.3 on a machine with two cores, or 0 if it was
	// not measured.
	kubeAPIServer float64
	target        string
	moonshot      string
}

// expectations are all rows in the order of the table.
var expectations = slices.Concat([]expectation{
	{"start", "start to /readyz 200, empty data", milliseconds, 2700, "250 ms", "80 ms"},
	{"memory-idle", "anonymous memory, idle after start", megabytes, 200, "15 MB", "10 MB"},
	{"binary", "size of the server's program", megabytes, 106, "70 MB", "40 MB"},
	{"create-pods", "create pods, 64 in flight, durable", perSecond, 768, "4,000/s", "8,000/s"},
	{"create-configmaps", "create ConfigMaps, 200 B, 64 in flight, durable", perSecond, 2133, "8,000/s", "15,000/s"},
	{"get-json", "get pod, JSON", perSecond, 2926, "15,000/s", "28,000/s"},
	{"get-protobuf", "get pod, protobuf", perSecond, 3110, "15,000/s", "28,000/s"},
	{"list-json", "list pods JSON, resourceVersion=0", milliseconds, 898, "160 ms", "1.2 x floor"},
	{"list-consistent", "list pods JSON, consistent", milliseconds, 990, "165 ms", "1.2 x floor"},
	{"list-protobuf", "list pods protobuf", milliseconds, 421, "110 ms", "1.2 x floor"},
	{"list-page", "list page, limit=500", milliseconds, 48, "9 ms", "1.2 x floor"},
	{"list-table", "list pods as Table", milliseconds, 531, "150 ms", "60 ms"},
	{"list-metadata", "list pods as PartialObjectMetadata", milliseconds, 289, "80 ms", "1.2 x floor"},
	{"list-selector", "list pods, label selector, 100 match", milliseconds, 14, "2 ms", "1 ms"},
	{"list-gzip", "list pods JSON, gzip", milliseconds, 682, "200 ms", "40 ms"},
	{"patch-status", "patch pod status (strategic merge)", perSecond, 511, "3,000/s", "6,000/s"},
	{"apply-configmaps", "apply new ConfigMaps (server-side apply)", perSecond, 1560, "5,000/s", "10,000/s"},
	{"apply-existing", "apply a change to ConfigMaps", perSecond, 0, "4,000/s", "8,000/s"},
	{"apply-deployments", "apply a change to Deployments of 1.5 KB", perSecond, 0, "3,000/s", "6,000/s"},
	{"memory-pods", "anonymous memory with the pods, after JSON and protobuf lists", megabytes, 1050, "220 MB", "160 MB"},
	{"memory-load", "the same, after all of the above", megabytes, 1990, "220 MB", "160 MB"},
	{"watch-200", "watch fan-out, 200 watchers x 2,000 events", perSecond, 72800, "400,000/s", "0.7 x floor"},
	{"watch-2000", "watch fan-out, 2,000 watchers x 300 events", perSecond, 104000, "400,000/s", "0.7 x floor"},
	{
		"watch-paced", "processor time of an event at one of 200 watchers, 800 events made in a second", microseconds, 35,
		"5 us", "",
	},
	{"watch-memory", "memory of each of these watchers", kilobytes, 63, "24 KB", "floor + 3 KB"},
	{"crd-served", "from creating a definition to listing its objects, p50", milliseconds, 500, "20 ms", "5 ms"},
	{"crd-cpu", "processor time of a definition of 40 fields", milliseconds, 149, "10 ms", "3 ms"},
	{"crd-memory", "memory of a definition of 40 fields", megabytes, 7, "0.5 MB", "0.1 MB"},
	{"crd-one-group", "the first, all definitions in one group", milliseconds, 500, "20 ms", "5 ms"},
	{"crd-discovery", "/apis of all groups, after one more definition", milliseconds, 0, "50 ms", "10 ms"},
	{"crd-openapi", "/openapi/v3, after one more definition", milliseconds, 0, "50 ms", "10 ms"},
	{"custom-create", "create custom objects, 4 KB JSON, 64 in flight, durable", perSecond, 0, "3,000/s", "6,000/s"},
	{"custom-list", "list 10,000 custom objects of 4 KB, resourceVersion=0", milliseconds, 0, "2 x floor", "1.2 x floor"},
	{"custom-get", "get custom object of 4 KB", perSecond, 0, "15,000/s", "28,000/s"},
	{"custom-memory", "memory of each of 10,000 custom objects of 4 KB", kilobytes, 0, "2.5 x floor", "1.5 x floor"},
	{"memory-configmaps", "memory of each of 60,000 ConfigMaps of 0.4 KB", kilobytes, 11, "1.2 KB", "0.8 KB"},
	{
		"watch-each-cpu", "processor time of a write that concerns none of 20,000 watchers of one object each (floor: 2,000)",
		milliseconds, 0, "1.2 x floor", "",
	},
	{"watch-each-lag", "lag of these watchers, p50", milliseconds, 0, "1.2 x floor", ""},
	{"watch-each-memory", "memory of each of these watchers", kilobytes, 0, "floor + 3 KB", "floor"},
	{
		"pages-churn", "slowest page of lists of 200,000 ConfigMaps, 6 readers, 700 writes/s (floor: no writes)",
		milliseconds, 0, "50 ms", "",
	},
	{"events-heap", "heap with 500,000 Events (floor: before)", megabytes, 0, "60 MB", ""},
	{"past-list", "list of pods as they were before 1,000,000 versions (floor: the list of now)", milliseconds, 0, "3 x floor", ""},
	{"past-history", "history of a pod among them, 100 versions", milliseconds, 0, "10 ms", ""},
	{"past-disk", "space of a version of a pod on the disk", kilobytes, 0, "", ""},
	{"bytes-configmaps", "memory of 50,000 ConfigMaps of 0.4 KB, loaded, of the bytes stored", times, 0, "1.2 x", ""},
	{"bytes-pods", "of 10,000 Pods", times, 0, "1.2 x", ""},
	{"bytes-small-reports", "of 10,000 custom objects of 4 KB", times, 0, "1.2 x", ""},
	{"bytes-reports", "of 100 custom objects of 0.6 MB", times, 5.2, "1.2 x", ""},
	{"bytes-large-reports", "of 100 custom objects of 1.3 MB", times, 5.2, "1.2 x", ""},
}, scaleExpectations())

// scaleExpectations are the rows of the populations. Those of figures that are measured at a smaller size too have it as
// their floor.
func scaleExpectations() []expectation {
	var all []expectation
	for _, p := range []struct{ row, name string }{
		{"scale", "ConfigMaps, half of 0.5 KB and half of 5 KB, up to 1,000,000 (floor: up to a tenth)"},
		{"namespaces", "Namespaces up to 10,000 (floor: up to 1,000)"},
		{"definitions", "CustomResourceDefinitions of 40 fields up to 5,000 (floor: up to 500)"},
		{"permissions", "Roles and bindings of RBAC up to 100,000 (floor: up to 1,000)"},
	} {
		all = append(all,
			expectation{p.row + "-create", "create " + p.name, perSecond, 0, "0.9 x floor", ""},
			expectation{p.row + "-memory", "memory of each of these", kilobytes, 0, "", ""},
			expectation{p.row + "-page", "list page of them, limit=500", milliseconds, 0, "1.2 x floor", ""},
			expectation{p.row + "-get", "get one of them, one at a time", milliseconds, 0, "1.1 x floor", ""},
			expectation{
				p.row + "-lag", "lag of one watcher of them, one write at a time, p50", milliseconds, 0, "1.1 x floor", "",
			},
			expectation{p.row + "-start", "start to /readyz 200 with them", milliseconds, 0, "250 ms", "80 ms"},
			expectation{p.row + "-load", "the first page of them after that", milliseconds, 0, "50 ms", ""},
			expectation{
				p.row + "-stream", "memory more than before while all of them are listed without a limit", megabytes, 0, "100 MB", "",
			},
		)
	}
	return append(all, expectation{
		"permissions-authorized", "get of a user whom RBAC authorizes, with them", milliseconds, 0, "1.1 x floor", "",
	})
}

// figure is the result for one row.
type figure struct {
	Row       string  `json:"row"`
	Name      string  `json:"name"`
	Unit      string  `json:"unit"`
	Value     float64 `json:"value"`
	Floor     float64 `json:"floor,omitempty"`
	Reference float64 `json:"reference,omitempty"`
	Detail    string  `json:"detail,omitempty"`
	Others    float64 `json:"others"` // the share of the processor time that other processes used meanwhile
	Error     string  `json:"error,omitempty"`
}

// report is the output of a run.
type report struct {
	Label   string    `json:"label,omitempty"`
	Server  string    `json:"server"`
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	CPUs    int       `json:"cpus"`
	Pods    int       `json:"pods"`
	Rows    []figure  `json:"rows"`
	Floors  []figure  `json:"floors"`
}

func expected(key string) (expectation, bool) {
	for _, e := range expectations {
		if e.key == key {
			return e, true
		}
	}
	return expectation{}, false
}

// ratio formats a quotient.
func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return ""
	}
	if q := a / b; q < 10 {
		return fmt.Sprintf("%.2f x", q)
	}
	return fmt.Sprintf("%.0f x", a/b)
}

// better returns how many times better than kube-apiserver's figure a value is.
func (e expectation) better(v float64) string {
	if e.unit == perSecond {
		return ratio(v, e.kubeAPIServer)
	}
	return ratio(e.kubeAPIServer, v)
}

// print prints the report as an aligned Markdown table.
func (r *report) print(w io.Writer) error {
	title := r.Label
	if title == "" {
		title = r.Server
	}
	rows := [][]string{{
		"row", "value", "floor", "value / floor", "kube-apiserver", "better than kube-apiserver", "target", "moonshot",
		"others' load", "detail",
	}}
	for _, e := range expectations {
		for _, f := range r.Rows {
			if f.Row != e.key {
				continue
			}
			value := e.unit.write(f.Value)
			if f.Error != "" {
				value = "failed"
				f.Detail = f.Error
			}
			rows = append(rows, []string{
				f.Name, value, e.unit.write(f.Floor), ratio(f.Value, f.Floor), e.unit.write(e.kubeAPIServer), e.better(f.Value),
				e.target, e.moonshot, fmt.Sprintf("%.0f %%", 100*f.Others), f.Detail,
			})
		}
	}
	floors := [][]string{{"floor", "value", "detail"}}
	for _, f := range r.Floors {
		floors = append(floors, []string{f.Name, perSecond.write(f.Value), f.Detail})
	}
	_, err := fmt.Fprintf(
		w, "## %s\n\n%s, version %s, %d processors, %s\n\n%s\n%s", title, r.Server, r.Version, r.CPUs,
		r.Time.Format(time.RFC3339), align(rows), align(floors),
	)
	return err
}

// align prints a Markdown table whose columns are as wide as their widest cell.
func align(rows [][]string) string {
	if len(rows) < 2 {
		return ""
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			b.WriteString("| " + cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+1))
		}
		b.WriteString("|\n")
		if n == 0 {
			for _, width := range widths {
				b.WriteString("|" + strings.Repeat("-", width+2))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}
