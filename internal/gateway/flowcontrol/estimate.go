package flowcontrol

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/request"
)

const (
	// bytesPerSeat is the number of bytes that a list reads per seat, objectsPerSeat the number of objects if their
	// size is unknown.
	bytesPerSeat, objectsPerSeat = 100_000, 100
	// maxListSeats is the largest number of seats of a list. A list of the current state has at most maxStreamed seats,
	// because it is sent object by object and needs little memory.
	maxListSeats, maxStreamed = 100, 10
	// watchersPerSeat is the number of watchers that a write notifies per seat, maxWriteSeats the largest width of a
	// write.
	watchersPerSeat, maxWriteSeats = 10, 10
	// notifyTime is the time for which these seats are occupied after the write has ended.
	notifyTime = 5 * time.Millisecond
)

// Estimate is the expected cost of a request.
type Estimate struct {
	// Initial is the number of seats while the request executes, and Final the number of seats for the time Extra
	// after its end. The request occupies the larger number in both times.
	Initial, Final int
	Extra          time.Duration
	// Watchers is the number of watchers that are notified; -1 if the request writes nothing.
	Watchers int
}

// estimate returns the estimate of a request that may occupy a number of seats at most.
func (c *Controller) estimate(info *request.Info, rawQuery string, most int) Estimate {
	switch info.Verb {
	case "list", "watch":
		if info.IsResource() {
			return Estimate{Initial: c.estimateList(info, rawQuery, most), Watchers: -1}
		}
	case "create", "update", "patch", "delete":
		if info.IsResource() {
			return c.estimateWrite(info, most)
		}
	}
	return Estimate{Initial: 1, Watchers: -1}
}

// estimateWrite counts the watchers that a write notifies.
func (c *Controller) estimateWrite(info *request.Info, most int) Estimate {
	if info.Resource == "serviceaccounts" && info.Subresource == "token" {
		return Estimate{Initial: 1} // it changes no object
	}
	n := c.watchers.interested(info)
	e := Estimate{Initial: 1, Watchers: n}
	if n < watchersPerSeat {
		return e
	}
	wanted := (n + watchersPerSeat - 1) / watchersPerSeat
	e.Final = min(wanted, most, maxWriteSeats)
	e.Extra = notifyTime * time.Duration(wanted) / time.Duration(e.Final) // fewer seats are occupied for longer
	return e
}

// estimateList returns the seats of a list, or of a watch that begins with the objects.
func (c *Controller) estimateList(info *request.Info, rawQuery string, most int) int {
	if info.Name != "" || c.o.Sizes == nil {
		return 1
	}
	if info.Verb == "watch" && !strings.Contains(rawQuery, "sendInitialEvents") {
		return 1
	}
	size, known := c.o.Sizes(info.Group, info.Resource)
	if !known || size.Objects == 0 {
		return 1
	}
	o, ok := parseList(rawQuery)
	if !ok || info.Verb == "watch" && !o.initialEvents {
		return 1
	}
	objects := size.Objects
	if o.limit > 0 && !o.selects && !o.anyVersion {
		objects = min(objects, o.limit)
	}
	seats := float64(objects) / objectsPerSeat
	if size.Bytes > 0 {
		seats = float64(objects) * float64(size.Bytes) / float64(size.Objects) / bytesPerSeat
	}
	bound := maxStreamed
	if o.old {
		bound = maxListSeats
	}
	return max(1, min(int(math.Ceil(seats)), bound, most))
}

// listOptions are the options of a list that its cost depends on.
type listOptions struct {
	limit         int64
	selects       bool // all objects are read, but only some may be returned
	anyVersion    bool // the limit is ignored
	old           bool // the state of an old revision is read from the history
	initialEvents bool
}

// parseList returns false if the query is not valid: the request is refused before it reads anything.
func parseList(rawQuery string) (o listOptions, ok bool) {
	if rawQuery == "" {
		return o, true
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return o, false
	}
	if limit := query.Get("limit"); limit != "" {
		if o.limit, err = strconv.ParseInt(limit, 10, 64); err != nil {
			return o, false
		}
	}
	if initial := query.Get("sendInitialEvents"); initial != "" {
		if o.initialEvents, err = strconv.ParseBool(initial); err != nil {
			return o, false
		}
	}
	version, token := query.Get("resourceVersion"), query.Get("continue")
	o.selects = query.Get("labelSelector") != "" || query.Get("fieldSelector") != ""
	o.anyVersion = version == "0" && token == ""
	o.old = token != "" || query.Get("resourceVersionMatch") == "Exact" || version != "" && version != "0" && o.limit > 0
	return o, true
}
