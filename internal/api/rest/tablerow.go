package rest

import (
	"bytes"
	"encoding/binary"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// A cached row is its JSON, in which each age is replaced by a mark, because its text depends on the time of reading:
// the byte 0, which JSON never contains, and the time in seconds and nanoseconds, big-endian. distanceBit is set in the
// nanoseconds of a registry.Distance.
const (
	ageMark     = 0
	ageMarkSize = 1 + 8 + 4
	// Nanoseconds are fewer than 2^30, so this bit is free.
	distanceBit = 1 << 31
)

// encodeRow returns the beginning of the row of obj: its JSON before the member "object", with a mark in place of
// each age.
func (s *served) encodeRow(obj registry.Object) ([]byte, error) {
	cells := s.Kind.Table.Cells
	if cells == nil {
		cells = genericCells
	}
	return s.encodeCells(obj, cells)
}

// encodeCells is encodeRow with the function that returns the cells.
func (s *served) encodeCells(obj registry.Object, cells func(registry.Object) []any) ([]byte, error) {
	b := []byte(`{"cells":[`)
	var err error
	for i, value := range cells(obj) {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendCell(b, value); err != nil {
			return nil, err
		}
	}
	b = append(b, ']')
	if conditions := s.Kind.Table.Conditions; conditions != nil {
		if b, err = appendConditions(b, conditions(obj)); err != nil {
			return nil, err
		}
	}
	return bytes.Clone(b), nil // a copy without unused capacity, because it is cached
}

func appendConditions(b []byte, conditions []metav1.TableRowCondition) ([]byte, error) {
	if len(conditions) == 0 {
		return b, nil
	}
	text, err := scheme.Marshal(conditions)
	if err != nil {
		return nil, err
	}
	return append(append(b, `,"conditions":`...), text...), nil
}

// appendCell appends the JSON of a cell. An age is put between the two texts, inside of the quotes of one string.
func appendCell(b []byte, value any) ([]byte, error) {
	var e registry.Elapsed
	var kind uint32
	switch value := value.(type) {
	case registry.Elapsed:
		e = value
	case registry.Distance:
		e.Since, kind = value.To, distanceBit
	default:
		text, err := scheme.Marshal(value)
		return append(b, text...), err
	}
	before, err := scheme.Marshal(e.Before)
	if err != nil {
		return b, err
	}
	after, err := scheme.Marshal(e.After)
	if err != nil {
		return b, err
	}
	b = append(b, before[:len(before)-1]...)
	b = append(b, ageMark)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Since.Unix()))
	b = binary.BigEndian.AppendUint32(b, uint32(e.Since.Nanosecond())|kind)
	return append(b, after[1:]...), nil
}

// ages replaces the marks in rows by ages as of now.
type ages struct {
	now time.Time
	// mark is the last mark, and text its text: neighbours often have the same age.
	mark string
	text []byte
}

// append appends a row, and replaces its marks by ages.
func (a *ages) append(b, row []byte) []byte {
	for {
		i := bytes.IndexByte(row, ageMark)
		if i < 0 {
			return append(b, row...)
		}
		b = append(b, row[:i]...)
		b = append(b, a.of(row[i+1:i+ageMarkSize])...)
		row = row[i+ageMarkSize:]
	}
}

// of returns the age for a mark, as a JSON string without its quotes.
func (a *ages) of(mark []byte) []byte {
	if a.mark == string(mark) {
		return a.text
	}
	nanoseconds := binary.BigEndian.Uint32(mark[8:])
	at := time.Unix(int64(binary.BigEndian.Uint64(mark)), int64(nanoseconds&^distanceBit))
	age := registry.ElapsedText(at, a.now)
	if nanoseconds&distanceBit != 0 {
		age = registry.Distance{To: at}.Text(a.now)
	}
	text, _ := scheme.Marshal(age) // encoding a string cannot fail
	a.mark, a.text = string(mark), text[1:len(text)-1]
	return a.text
}
