package reevetest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Rule selects requests, lets some of them pass, hits some, and has a fault. Empty fields select all requests.
type Rule struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection.
	Verb string `json:"verb,omitempty"`
	// Group is the API group; a pointer to "" is core.
	Group *string `json:"group,omitempty"`
	// Resource is the plural resource; for other paths the whole path, such as /version.
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Subresource is such as status; a pointer to "" is the object itself.
	Subresource *string `json:"subresource,omitempty"`
	// UserAgent is a part of the header.
	UserAgent string `json:"userAgent,omitempty"`
	// After lets so many matching requests pass first.
	After uint64 `json:"after,omitempty"`
	// Times hits so many requests, then none; 0 hits all.
	Times uint64 `json:"times,omitempty"`
	// Probability hits each matching request with this probability; 0 hits each.
	Probability float64 `json:"probability,omitempty"`
	// Fault is what happens to the requests.
	Fault Fault `json:"fault"`
}

// Fault is what happens to a request. The functions of this package make one.
type Fault struct {
	name    string
	options map[string]any
}

// MarshalJSON implements json.Marshaler.
func (f Fault) MarshalJSON() ([]byte, error) {
	if f.options == nil {
		return json.Marshal(f.name)
	}
	return json.Marshal(map[string]any{f.name: f.options})
}

// Status answers with a Status of this code, with the reason of the code.
func Status(code int, message string) Fault {
	return Fault{"status", map[string]any{"code": code, "message": message}}
}

// Text answers with plain text of this code, as proxies do, and priority and fairness with 429.
func Text(code int, message string) Fault {
	return Fault{"text", map[string]any{"code": code, "message": message}}
}

// RetryAfter adds the header Retry-After, in whole seconds, to a [Status] or a [Text].
func (f Fault) RetryAfter(wait time.Duration) Fault {
	options := map[string]any{"retryAfterSeconds": int(wait.Seconds())}
	for name, value := range f.options {
		options[name] = value
	}
	return Fault{f.name, options}
}

// Delay waits before the request is processed.
func Delay(delay time.Duration) Fault {
	return Fault{"delay", map[string]any{"seconds": delay.Seconds()}}
}

// DelayAnswer waits after a write was stored, before the answer.
func DelayAnswer(delay time.Duration) Fault {
	return Fault{"delayAnswer", map[string]any{"seconds": delay.Seconds()}}
}

// Reset breaks the connection before the request is processed.
func Reset() Fault { return Fault{name: "reset"} }

// LoseAnswer processes the request, then breaks the connection: the client cannot tell whether it was stored.
func LoseAnswer() Fault { return Fault{name: "loseAnswer"} }

// Stall never answers; the connection stays open.
func Stall() Fault { return Fault{name: "stall"} }

// Stale serves reads as of this version, as a server with an old cache does.
func Stale(resourceVersion string) Fault {
	return Fault{"stale", map[string]any{"resourceVersion": resourceVersion}}
}

// CloseEmpty ends a watch at once, with 200 and no event.
func CloseEmpty() Fault { return Fault{name: "closeEmpty"} }

// ResetAfter breaks the connection after so many pieces of the answer (for a watch: batches of events).
func ResetAfter(pieces int) Fault { return stream("resetAfter", pieces) }

// CloseAfter ends the answer after so many pieces as if it were complete.
func CloseAfter(pieces int) Fault { return stream("closeAfter", pieces) }

// TruncateAfter sends half of the piece after so many, then ends the answer.
func TruncateAfter(pieces int) Fault { return stream("truncateAfter", pieces) }

// StallAfter sends so many pieces of the answer, then nothing more, with the connection open.
func StallAfter(pieces int) Fault { return stream("stallAfter", pieces) }

func stream(name string, pieces int) Fault {
	return Fault{name, map[string]any{"pieces": pieces}}
}

// FaultRule is a rule in force.
type FaultRule struct {
	server *Server
	id     string
}

type ruleState struct {
	ID   string `json:"id"`
	Hits uint64 `json:"hits"`
}

// AddFault adds a rule after the existing ones.
func (s *Server) AddFault(ctx context.Context, rule Rule) (*FaultRule, error) {
	var state ruleState
	if err := s.call(ctx, http.MethodPost, "faults", rule, &state); err != nil {
		return nil, err
	}
	return &FaultRule{s, state.ID}, nil
}

// ClearFaults removes all rules, and turns bookmarks and streaming lists on.
func (s *Server) ClearFaults(ctx context.Context) error {
	return s.call(ctx, http.MethodDelete, "faults", nil, nil)
}

// Hits is the number of requests that the rule hit.
func (f *FaultRule) Hits(ctx context.Context) (uint64, error) {
	var state ruleState
	err := f.server.call(ctx, http.MethodGet, "faults/"+url.PathEscape(f.id), nil, &state)
	return state.Hits, err
}

// Remove removes the rule; it returns the number of requests that it hit.
func (f *FaultRule) Remove(ctx context.Context) (uint64, error) {
	var state ruleState
	err := f.server.call(ctx, http.MethodDelete, "faults/"+url.PathEscape(f.id), nil, &state)
	return state.Hits, err
}

// SetBookmarks turns the bookmarks of all watches on or off.
func (s *Server) SetBookmarks(ctx context.Context, on bool) error {
	return s.call(ctx, http.MethodPatch, "switches", map[string]bool{"bookmarks": on}, nil)
}

// SetStreamingLists allows or refuses watches that begin with a list (sendInitialEvents).
func (s *Server) SetStreamingLists(ctx context.Context, on bool) error {
	return s.call(ctx, http.MethodPatch, "switches", map[string]bool{"streamingLists": on}, nil)
}

// CloseWatches ends all open watches, as a server that restarts.
func (s *Server) CloseWatches(ctx context.Context) error {
	return s.call(ctx, http.MethodDelete, "watches", nil, nil)
}

// Outage takes the server down for a time, a moment after the call: connections break and its port is closed. It comes back at the
// same address without its history, so older watches get 410.
func (s *Server) Outage(ctx context.Context, lasts time.Duration) error {
	return s.call(ctx, http.MethodPost, "outage", seconds(lasts), nil)
}

func seconds(duration time.Duration) map[string]float64 {
	return map[string]float64{"seconds": duration.Seconds()}
}
