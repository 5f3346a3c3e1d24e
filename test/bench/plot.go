package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
)

// The sizes of the plot, in pixels.
const (
	plotWidth, plotLeft, plotRight = 960, 330, 70
	barHeight, barGap, groupGap    = 12, 2, 12
	plotTop                        = 64
)

// barColors are the colors of the floor and of the servers in their order.
var barColors = []string{"#9aa0a6", "#1a73e8", "#8ab4f8", "#d93025"}

// plotCosts returns an SVG picture of the medians: a group of bars for each row, on a logarithmic scale, because rows
// differ by a factor of ten thousand.
func plotCosts(title string, sides []*costSide) []byte {
	type group struct {
		name string
		bars []float64
	}
	var groups []group
	lowest, highest := math.Inf(1), 0.0
	for _, row := range costRows() {
		g := group{name: row.name, bars: []float64{floorOf(sides, row.key)}}
		for _, s := range sides {
			g.bars = append(g.bars, middle(s.Rows[row.key].Server))
		}
		if g.bars[1] == 0 {
			continue
		}
		for _, v := range g.bars {
			if v > 0 {
				lowest, highest = min(lowest, v), max(highest, v)
			}
		}
		groups = append(groups, g)
	}
	first, last := math.Floor(math.Log10(lowest)), math.Ceil(math.Log10(highest))
	if len(groups) == 0 || first == last {
		first, last = 0, 1
	}
	x := func(v float64) float64 {
		return plotLeft + (math.Log10(v)-first)/(last-first)*(plotWidth-plotLeft-plotRight)
	}
	groupHeight := (len(sides)+1)*(barHeight+barGap) + groupGap
	height := plotTop + len(groups)*groupHeight + 24
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+
		"\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", plotWidth, height)
	fmt.Fprintf(&b, `<text x="10" y="20" font-size="15">%s</text>`+"\n", html.EscapeString(title))
	legend := []string{"floor"}
	for _, s := range sides {
		legend = append(legend, programName(s.Command))
	}
	for i, text := range legend {
		at := 10 + i*220
		fmt.Fprintf(&b, `<rect x="%d" y="32" width="12" height="12" fill="%s"/><text x="%d" y="43">%s</text>`+"\n",
			at, barColors[i], at+18, html.EscapeString(text))
	}
	for decade := first; decade <= last; decade++ {
		at := x(math.Pow(10, decade))
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e0e0e0"/><text x="%.1f" y="%d" `+
			`text-anchor="middle" fill="#5f6368">%g us</text>`+"\n", at, plotTop-6, at, height-20, at, height-6,
			math.Pow(10, decade))
	}
	for n, g := range groups {
		y := plotTop + n*groupHeight
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", plotLeft-8,
			y+(len(sides)+1)*(barHeight+barGap)/2+4, html.EscapeString(g.name))
		for i, v := range g.bars {
			if v <= 0 {
				continue
			}
			top := y + i*(barHeight+barGap)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d" font-size="10">%s</text>`+
				"\n", plotLeft, top, max(1, x(v)-plotLeft), barHeight, barColors[i], x(v)+4, top+barHeight-2, microseconds.write(v))
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
