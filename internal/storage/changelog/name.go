package changelog

import (
	"fmt"
	"time"
)

// Name is what the name of a segment says about it.
type Name struct {
	After, Through int64
	// Last is the time of the last transaction, to the millisecond.
	Last time.Time
}

// nameFormat has 19 digits for a number, so that the order of the names is the order of the numbers.
const nameFormat = "%019d-%019d-%013d.changes"

// String returns the name: the revision before the first one, the last one and the time in Unix milliseconds.
func (n Name) String() string {
	return fmt.Sprintf(nameFormat, n.After, n.Through, milliseconds(n.Last))
}

// ParseName parses a name. ok is false for one that String does not return.
func ParseName(s string) (n Name, ok bool) {
	var ms int64
	if _, err := fmt.Sscanf(s, nameFormat, &n.After, &n.Through, &ms); err != nil || n.After < 0 || n.Through < n.After {
		return Name{}, false
	}
	n.Last = timeOf(ms)
	return n, n.String() == s
}
