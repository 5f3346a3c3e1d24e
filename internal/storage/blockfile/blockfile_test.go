package blockfile

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

var errDamaged = errors.New("damaged")

const line = "FORMAT 1\n"

// write writes a file with two records in one block, one in a block of another kind, and a block of its own.
func write(t *testing.T, large int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, line)
	if err != nil {
		t.Fatal(err)
	}
	record := func(text []byte) func([]byte) []byte {
		return func(b []byte) []byte { return AppendBytes(b, text) }
	}
	err = errors.Join(
		w.Add('a', 20, record([]byte("one"))), w.Add('a', 20, record([]byte("two"))),
		w.Add('b', large+20, record(make([]byte, large))), w.Block('z', []byte("end")), w.Close(),
	)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read returns the blocks of a file up to the one of kind z.
func read(file []byte) (blocks []string, err error) {
	r := NewReader(bytes.NewReader(file), errDamaged)
	first, err := r.Line(len(line))
	if err != nil {
		return nil, err
	}
	if first != line {
		return nil, r.Damaged("its first line is %q", first)
	}
	for {
		kind, payload, err := r.Next()
		if err != nil {
			return blocks, err
		}
		blocks = append(blocks, fmt.Sprintf("%c %d", kind, len(payload)))
		if kind == 'z' {
			_, err := r.End()
			return blocks, err
		}
	}
}

func TestBlocks(t *testing.T) {
	for large, want := range map[int]string{
		10:              "[a 8 b 11 z 3]",
		3 * targetBytes: fmt.Sprintf("[a 8 b %d z 3]", 3*targetBytes+3),
	} {
		if got, err := read(write(t, large)); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%v, %v, want %s", got, err, want)
		}
	}
}

// TestEveryChangeIsDetected changes each byte of a file, cuts the file at each length, and appends to it.
func TestEveryChangeIsDetected(t *testing.T) {
	file := write(t, 10)
	for i := range file {
		changed := bytes.Clone(file)
		changed[i] ^= 0x10
		if _, err := read(changed); !errors.Is(err, errDamaged) {
			t.Errorf("byte %d was changed: %v", i, err)
		}
		if _, err := read(file[:i]); !errors.Is(err, errDamaged) {
			t.Errorf("cut at byte %d: %v", i, err)
		}
	}
	if _, err := read(append(bytes.Clone(file), 0)); !errors.Is(err, errDamaged) {
		t.Errorf("with something behind: %v", err)
	}
}
