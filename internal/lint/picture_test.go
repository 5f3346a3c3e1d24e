package lint

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// picture is the size of docs/floors.svg, in pixels.
const (
	pictureWidth, floorHeight, floorGap = 1080, 58, 10
	nameWidth, roomGap                  = 110, 6
)

// TestPictureOfFloors compares docs/floors.svg with the packages: each floor with its rooms, and the floors that it
// imports.
func TestPictureOfFloors(t *testing.T) {
	got := picture(measure(t))
	name := filepath.Join(root, "docs", "floors.svg")
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is old; go test ./internal/lint -update writes it", name)
	}
}

// building is what the picture shows.
type building struct {
	rooms map[string][]string        // the trees of each floor, from the highest to the lowest
	down  map[string]map[string]bool // the floors that a floor imports
}

// measure reads the repository.
func measure(t *testing.T) building {
	b := building{rooms: map[string][]string{}, down: map[string]map[string]bool{}}
	for _, f := range files(t) {
		from := floorOf(f.dir)
		if from == "" || f.test || isTestSupport(f.dir) {
			continue
		}
		for _, i := range f.imports {
			to := floorOf(strings.TrimPrefix(i, module+"/"))
			if to != "" && to != from {
				if b.down[from] == nil {
					b.down[from] = map[string]bool{}
				}
				b.down[from][to] = true
			}
		}
	}
	for _, f := range floors {
		for _, line := range slices.Backward(f.lines) {
			for _, name := range line {
				b.rooms[f.name] = append(b.rooms[f.name], path.Join("internal", f.name, name))
			}
		}
	}
	return b
}

// floorOf returns the name of the floor of a package, "" if it is on none.
func floorOf(dir string) string {
	rest, ok := strings.CutPrefix(dir, "internal/")
	name, _, _ := strings.Cut(rest, "/")
	if !ok || !slices.ContainsFunc(floors, func(f floor) bool { return f.name == name }) {
		return ""
	}
	return name
}

// picture draws the floors, the highest at the top.
func picture(b building) []byte {
	var out bytes.Buffer
	height := len(floors) * (floorHeight + floorGap)
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		pictureWidth, height)
	y := 0
	for _, f := range slices.Backward(floors) {
		fmt.Fprintf(&out, `<rect x="0" y="%d" width="%d" height="%d" rx="6" fill="#eef2f7"/>`+"\n", y, pictureWidth, floorHeight)
		fmt.Fprintf(&out, `<text x="10" y="%d" font-weight="bold">%s</text>`+"\n", y+22, f.name)
		drawRooms(&out, b, f.name, y)
		var below []string
		for _, other := range slices.Backward(floors) {
			if b.down[f.name][other.name] {
				below = append(below, other.name)
			}
		}
		if len(below) > 0 {
			fmt.Fprintf(&out, `<text x="%d" y="%d" fill="#556">imports %s</text>`+"\n",
				nameWidth, y+floorHeight-8, strings.Join(below, ", "))
		}
		y += floorHeight + floorGap
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// drawRooms draws the trees of a floor beside each other. What their names leave of the floor is divided evenly.
func drawRooms(out *bytes.Buffer, b building, name string, y int) {
	const letter, padding = 7, 14
	rooms := b.rooms[name]
	left := pictureWidth - nameWidth - 10
	for _, room := range rooms {
		left -= len(path.Base(room))*letter + padding + roomGap
	}
	x := nameWidth
	for _, room := range rooms {
		width := len(path.Base(room))*letter + padding + max(left, 0)/len(rooms)
		fmt.Fprintf(out, `<rect x="%d" y="%d" width="%d" height="26" rx="4" fill="#fff" stroke="#8aa"/>`, x, y+6, width)
		fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", x+width/2, y+24, path.Base(room))
		x += width + roomGap
	}
}
