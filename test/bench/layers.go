package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// profileTime is how long a profile is taken, in seconds. It begins with the measured requests.
const profileTime = 3

// layerRule says which layer a function belongs to: its name without the module begins with prefix. A sample belongs to
// the layer of the innermost function of its stack that has a rule, so what a layer calls in the runtime, in the
// standard library or in a package without a rule is a part of the layer.
type layerRule struct{ prefix, layer string }

const (
	pebblePackage = "github.com/cockroachdb/pebble/v2"
	stepPrefix    = "internal/api/write.(*attempt)."
	filterPrefix  = "internal/gateway/filter/"
	// Methods of the encodings begin with this.
	registryPrefix = "internal/object/registry.(*"
)

// layerRules are tried in this order.
var layerRules = []layerRule{
	{"runtime.gcBgMarkWorker", "collector"}, {"runtime.gcAssistAlloc", "collector"}, {"runtime.bgsweep", "collector"},
	{"runtime.bgscavenge", "collector"}, {"runtime.gcStart", "collector"}, {"runtime.gcMarkTermination", "collector"},
	{"runtime.newstack", "stacks that grow"},
	{"runtime.schedule", "scheduler"}, {"runtime.mcall", "scheduler"}, {"runtime.mstart", "scheduler"},
	{"runtime.ready", "scheduler"}, {"runtime.goready", "scheduler"}, {"runtime.newproc", "scheduler"},
	{pebblePackage + ".(*DB).runCompaction", "storage: flush and compaction"},
	{pebblePackage + ".(*DB).flush1", "storage: flush and compaction"},
	{pebblePackage + ".(*DB).compact", "storage: flush and compaction"},
	{pebblePackage + "/record.", "storage: log"},
	{pebblePackage + ".(*commitPipeline)", "storage: commit"}, {pebblePackage + ".(*DB).Apply", "storage: commit"},
	{"internal/storage/embedded.(*planner)", "storage: plan"}, {"internal/storage/embedded.", "storage: commit"},
	{"internal/storage/cache.", "cache and its feed"},
	{"internal/access/auth/", "authentication and authorization"},
	{"internal/server/chain.", "filters: the chain"},
	{"internal/api/directory.", "verb"}, {"internal/api/rest.", "verb"},
	{"net/http.(*http2", "transport"}, {"golang.org/x/net/http2", "transport"}, {"crypto/tls.", "transport"},
	{"internal/server.", "transport"}, {"net/http.", "transport"}, {"net.", "transport"},
}

// encodingLayers has the layers of the methods of the encodings of package registry.
var encodingLayers = map[string]string{
	"encode": "encode the stored object", "preview": "encode the response", "decode": "decode the current object",
	"decodeAsWritten": "decode the current object", "read": "read labels and fields of stored objects",
}

// module is what the names of the functions of Keelson begin with.
const module = "github.com/keelson-dev/keelson/"

// layerOf returns the layer of a stack, whose innermost function comes first.
func layerOf(stack []string) string {
	for i, function := range stack {
		name := strings.TrimPrefix(function, module)
		if strings.HasPrefix(name, stepPrefix) {
			return "write: " + stepOf(stack[i:])
		}
		if rest, ok := strings.CutPrefix(name, filterPrefix); ok {
			filter, _, _ := strings.Cut(rest, ".")
			return "filter: " + filter
		}
		if rest, ok := strings.CutPrefix(name, registryPrefix); ok {
			if _, method, _ := strings.Cut(rest, "Encoding)."); encodingLayers[method] != "" {
				return encodingLayers[method]
			}
		}
		for _, rule := range layerRules {
			if strings.HasPrefix(name, rule.prefix) {
				return rule.layer
			}
		}
	}
	return "other"
}

// stepOf returns the step of a write: the outermost method of an attempt that run, which has the list, calls.
func stepOf(stack []string) string {
	step := "between the steps"
	for _, function := range stack {
		rest, ok := strings.CutPrefix(function, module+stepPrefix)
		if name, _, _ := strings.Cut(rest, "."); ok && name != "run" {
			step = name
		}
	}
	return step
}

// takeProfile reads a CPU profile of a server and returns the samples of each layer.
func takeProfile(t *target) (map[string]int64, error) {
	c, err := dial(t)
	if err != nil {
		return nil, err
	}
	defer c.close()
	path := fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileTime)
	a, err := c.do(&request{method: http.MethodGet, path: path}, requestTime)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		return nil, fmt.Errorf("%s: %d %.300s", path, a.status, a.body)
	}
	stacks, err := readProfile(a.body)
	if err != nil {
		return nil, err
	}
	layers := map[string]int64{}
	for _, s := range stacks {
		layers[layerOf(s.functions)] += s.samples
	}
	return layers, nil
}

// profileStack is a stack, its innermost function first, and how often it was seen.
type profileStack struct {
	functions []string
	samples   int64
}

// readProfile reads the format of runtime/pprof: gzip of the message Profile in
// https://github.com/google/pprof/blob/main/proto/profile.proto. Its first value of a sample is the number of samples.
func readProfile(compressed []byte) ([]profileStack, error) {
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	const sampleField, locationField, functionField, stringField = 2, 4, 5, 6
	type sample struct {
		locations []uint64
		samples   int64
	}
	var samples []sample
	locations, functions := map[uint64][]uint64{}, map[uint64]uint64{} // functions of a location; name of a function
	var texts []string
	err = eachField(raw, func(number protowire.Number, b []byte, _ uint64) error {
		switch number {
		case sampleField:
			const location, value = 1, 2
			ids, err := varints(b, location)
			if err != nil {
				return err
			}
			values, err := varints(b, value)
			if err != nil || len(values) == 0 {
				return errors.Join(err, errors.New("a sample without a value"))
			}
			samples = append(samples, sample{ids, int64(values[0])})
		case locationField:
			var id uint64
			var lines []uint64
			err := eachField(b, func(number protowire.Number, line []byte, v uint64) error {
				const idField, lineField, functionOfLine = 1, 4, 1
				switch number {
				case idField:
					id = v
				case lineField:
					function, err := varints(line, functionOfLine)
					lines = append(lines, function...)
					return err
				}
				return nil
			})
			locations[id] = lines
			return err
		case functionField:
			const idField, nameField = 1, 2
			var id, name uint64
			err := eachField(b, func(number protowire.Number, _ []byte, v uint64) error {
				switch number {
				case idField:
					id = v
				case nameField:
					name = v
				}
				return nil
			})
			functions[id] = name
			return err
		case stringField:
			texts = append(texts, string(b))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	stacks := make([]profileStack, len(samples))
	for i, s := range samples {
		stacks[i].samples = s.samples
		for _, l := range s.locations {
			for _, f := range locations[l] {
				if name := functions[f]; name < uint64(len(texts)) {
					stacks[i].functions = append(stacks[i].functions, texts[name])
				}
			}
		}
	}
	return stacks, nil
}

// eachField calls f with each field of a message: its bytes or its number.
func eachField(message []byte, f func(number protowire.Number, b []byte, v uint64) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var b []byte
		var v uint64
		switch kind {
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if err := f(number, b, v); err != nil {
			return err
		}
	}
	return nil
}

// varints returns the values of a repeated number, packed or not.
func varints(message []byte, field protowire.Number) (values []uint64, err error) {
	return values, eachField(message, func(number protowire.Number, b []byte, v uint64) error {
		if number != field {
			return nil
		}
		if b == nil {
			values = append(values, v)
			return nil
		}
		for len(b) > 0 {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			values, b = append(values, v), b[n:]
		}
		return nil
	})
}

// layerTable returns a table of the processor time of each layer in each row, in microseconds.
func layerTable(side *costSide) string {
	var rows []costRow
	all := map[string]float64{}
	for _, row := range costRows() {
		f := side.Rows[row.key]
		if len(f.Layers) == 0 {
			continue
		}
		rows = append(rows, row)
		for layer, share := range f.shares() {
			all[layer] += share
		}
	}
	if len(rows) == 0 {
		return ""
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if all[a] != all[b] {
			if all[a] > all[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	table := [][]string{{"us of server CPU in"}}
	for _, row := range rows {
		table[0] = append(table[0], row.key)
	}
	for _, name := range names {
		cells := []string{name}
		for _, row := range rows {
			f := side.Rows[row.key]
			cells = append(cells, fmt.Sprintf("%.1f", f.shares()[name]*middle(f.Server)))
		}
		table = append(table, cells)
	}
	return "\n" + align(table)
}

// shares returns the part of the processor time of each layer.
func (f costFigure) shares() map[string]float64 {
	var total int64
	for _, n := range f.Layers {
		total += n
	}
	shares := map[string]float64{}
	for layer, n := range f.Layers {
		shares[layer] = float64(n) / float64(max(1, total))
	}
	return shares
}

// profiled runs measure while a profile of the server is taken, and returns the samples of each layer. The profile goes
// on for profileTime, also if the requests end before.
func (b *bench) profiled(measure func() error) (map[string]int64, error) {
	type result struct {
		layers map[string]int64
		err    error
	}
	done := make(chan result, 1)
	go func() {
		layers, err := takeProfile(b.server)
		done <- result{layers, err}
	}()
	const begun = 50 * time.Millisecond // the profile begins with the first request
	time.Sleep(begun)
	err := measure()
	r := <-done
	return r.layers, errors.Join(err, r.err)
}
