package fairqueue

import "slices"

// Deal appends to hand the indexes of size different queues out of a number of queues, and returns it. The hash decides
// which ones. If it is evenly distributed, all hands are about equally likely.
//
// The hash is read as a number in a mixed radix: the first digit has the radix queues, the second queues-1, and so on.
// A digit d chooses the queue that has d smaller queues which were not chosen before. For example, of 4 queues and the
// digits 1, 1: the first queue is 1; of the others, 0, 2 and 3, the second is 2.
func Deal(hand []int, hash uint64, queues, size int) []int {
	const most = 16 // kept in order without an allocation
	var space [most]int
	ordered := space[:0]
	for left := queues; left > queues-min(size, queues); left-- {
		index := int(hash % uint64(left)) //nolint:gosec // less than left
		hash /= uint64(left)              //nolint:gosec // positive
		place := 0
		for place < len(ordered) && ordered[place] <= index {
			index++
			place++
		}
		ordered = slices.Insert(ordered, place, index)
		hand = append(hand, index)
	}
	return hand
}
