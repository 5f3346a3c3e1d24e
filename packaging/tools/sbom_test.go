package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

// TestBill writes the bill of this test's own program twice.
func TestBill(t *testing.T) {
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := writeBill(out, os.Args[0]); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("two bills of one program differ")
	}
	var b bill
	if err := json.Unmarshal(first.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	program := b.Metadata.Component
	if program.Type != "application" || len(program.Hashes) != 1 || len(program.Hashes[0].Content) != 64 {
		t.Errorf("the program: %+v", program)
	}
	if len(b.Components) == 0 || b.Components[0].Name != "stdlib" {
		t.Errorf("the components: %+v", b.Components)
	}
}
