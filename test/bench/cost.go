package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// dearer is the largest quotient of the processor times of the first and the second server that is not reported.
const dearer = 1.05

// costSide is one of the measured servers.
type costSide struct {
	Command string                `json:"command"`
	Rows    map[string]costFigure `json:"rows"`
}

// costFigure has the processor times of a row in each round, in microseconds.
type costFigure struct {
	Server []float64 `json:"server"`
	Floor  []float64 `json:"floor"`
	// Layers has the number of samples in each layer of the server, of all rounds, with --layers.
	Layers map[string]int64 `json:"layers,omitempty"`
	Error  string           `json:"error,omitempty"`
}

// compareCosts measures the rows of costRows on one to three servers in turn, each round on new data, and prints the
// medians of the rounds. It returns an error if an operation costs more on the first server than on the
// second, see dearerRows.
func compareCosts(ctx context.Context, o *options, dir string, out, progress io.Writer) error {
	var sides []*costSide
	for _, command := range []string{o.start, o.against, o.reference} {
		if command != "" {
			sides = append(sides, &costSide{Command: command, Rows: map[string]costFigure{}})
		}
	}
	for round := range o.rounds {
		for i := range sides {
			side := sides[(i+round)%len(sides)]
			fmt.Fprintf(progress, "bench: round %d of %d: %s\n", round+1, o.rounds, side.Command)
			one := *o
			one.start, one.layers = side.Command, o.layers && side == sides[0]
			b, err := newBench(ctx, &one, dir, progress)
			if err != nil {
				return err
			}
			b.measureCosts(side)
			b.close()
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	if o.json != "" {
		content, err := json.MarshalIndent(sides, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(content, '\n'), 0o644); err != nil {
			return err
		}
	}
	if o.plot != "" {
		if err := os.WriteFile(o.plot, plotCosts(o.label, sides), 0o644); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(out, costTable(o, sides)); err != nil || o.against == "" {
		return err
	}
	return dearerRows(sides[0], sides[1])
}

// measureCosts adds one round of the selected rows to a side. Each row begins on a new server.
func (b *bench) measureCosts(side *costSide) {
	for _, row := range costRows() {
		if !b.options.rows.MatchString(row.key) || b.ctx.Err() != nil {
			continue
		}
		f := side.Rows[row.key]
		var c *cost
		b.layers = nil
		err := b.fresh()
		if err == nil {
			b.awaitIdle()
			c, err = row.measure(b)
		}
		if err != nil {
			f.Error = err.Error()
			fmt.Fprintf(b.progress, "bench: %s: %v\n", row.key, err)
		} else {
			f.Server, f.Floor = append(f.Server, micros(c.server)), append(f.Floor, micros(c.floor))
			for layer, n := range b.layers {
				if f.Layers == nil {
					f.Layers = map[string]int64{}
				}
				f.Layers[layer] += n
			}
			fmt.Fprintf(b.progress, "bench: %s: %s, floor %s\n", row.key, short(c.server), short(c.floor))
		}
		side.Rows[row.key] = f
	}
}

// awaitIdle waits until the server has finished what it does in the background, at most a minute: after a start, keys and
// default objects, so that this is not counted for the operations of a row.
func (b *bench) awaitIdle() {
	const pause, idle, longest = 500 * time.Millisecond, clockTick, time.Minute
	before := treeUsage(b.server.pid).cpu
	for end := time.Now().Add(longest); time.Now().Before(end); {
		time.Sleep(pause)
		now := treeUsage(b.server.pid).cpu
		if now-before <= idle {
			return
		}
		before = now
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// middle returns the median of values, 0 if there are none.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// floorOf returns the median floor of a row over the rounds of all sides, because it is the same program for all.
func floorOf(sides []*costSide, key string) float64 {
	var all []float64
	for _, s := range sides {
		all = append(all, s.Rows[key].Floor...)
	}
	return middle(all)
}

// costTable returns the table of all rows: for each server its processor time, its spread, and the quotient to the floor,
// or to the first server.
func costTable(o *options, sides []*costSide) string {
	head := []string{"server CPU of", "floor"}
	for i := range sides {
		head = append(head, fmt.Sprint(i+1), "spread", "x floor")
		if i > 0 {
			head = append(head, fmt.Sprintf("%d / 1", i+1))
		}
	}
	rows := [][]string{head}
	for _, row := range costRows() {
		floor := floorOf(sides, row.key)
		cells := []string{row.name, microseconds.write(floor)}
		measured := false
		for i, s := range sides {
			f, first := s.Rows[row.key], middle(sides[0].Rows[row.key].Server)
			value := middle(f.Server)
			measured = measured || value > 0 || f.Error != ""
			spread := ""
			if len(f.Server) > 0 {
				spread = spreadOf(f.Server)
			}
			if f.Error != "" {
				spread = "failed: " + f.Error
			}
			cells = append(cells, microseconds.write(value), spread, ratio(value, floor))
			if i > 0 {
				cells = append(cells, ratio(value, first))
			}
		}
		if measured {
			rows = append(rows, cells)
		}
	}
	text := "## " + o.label + "\n\n"
	for i, s := range sides {
		text += fmt.Sprintf("%d: %s\n", i+1, s.Command)
	}
	text += fmt.Sprintf("medians of %d rounds in turn, %d operations a row, %d in flight\n\n%s", o.rounds, o.pods, inFlight,
		align(rows))
	return text + layerTable(sides[0])
}

// spreadOf returns the lowest and the highest of some processor times as text.
func spreadOf(times []float64) string {
	number := func(v float64) string { return strings.TrimSuffix(microseconds.write(v), " "+microseconds.String()) }
	return number(slices.Min(times)) + " to " + number(slices.Max(times))
}

// dearerRows returns an error that names the rows in which a takes more than b: both in the median and in the best
// round, so that a disturbed round alone is not reported.
func dearerRows(a, b *costSide) error {
	var names []string
	for _, row := range costRows() {
		x, y := a.Rows[row.key].Server, b.Rows[row.key].Server
		if failure := a.Rows[row.key].Error; failure != "" {
			names = append(names, row.key+" failed")
			continue
		}
		if len(x) == 0 || len(y) == 0 {
			continue
		}
		if middle(x) > dearer*middle(y) && slices.Min(x) > dearer*slices.Min(y) {
			names = append(names, fmt.Sprintf("%s %.0f %%", row.key, 100*(middle(x)/middle(y)-1)))
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("dearer than the second server by more than 5 %%: %v", names)
	}
	return nil
}

// programName returns the name of the program in a command line, of a script the one of its file without ".sh".
func programName(command string) string {
	words := strings.Fields(command)
	if len(words) > 1 && strings.HasSuffix(words[1], ".sh") {
		words = words[1:]
	}
	if len(words) == 0 {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(words[0]), ".sh")
}
