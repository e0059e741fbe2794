package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var ipBlockVersion = schema.GroupVersion{Group: "ops.example.io", Version: "v1"}

// IPBlock is the custom resource of the canned server.
type IPBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPBlockSpec   `json:"spec"`
	Status            IPBlockStatus `json:"status,omitempty"`
}

// IPBlockSpec is the desired state.
type IPBlockSpec struct {
	IP       string   `json:"ip"`
	Duration string   `json:"duration,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Source   string   `json:"source,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	TS       string   `json:"ts,omitempty"`
}

// IPBlockStatus is the present state.
type IPBlockStatus struct {
	Phase              string `json:"phase,omitempty"`
	Engine             string `json:"engine,omitempty"`
	Message            string `json:"message,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	BlockedAt          string `json:"blockedAt,omitempty"`
	ExpiresAt          string `json:"expiresAt,omitempty"`
}

// IPBlockList is a list of them.
type IPBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPBlock `json:"items"`
}

// DeepCopy copies all of it.
func (in *IPBlock) DeepCopy() *IPBlock {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Tags = append([]string(nil), in.Spec.Tags...)
	return &out
}

// DeepCopyObject is for runtime.Object.
func (in *IPBlock) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyObject is for runtime.Object.
func (in *IPBlockList) DeepCopyObject() runtime.Object {
	out := &IPBlockList{TypeMeta: in.TypeMeta, Items: make([]IPBlock, len(in.Items))}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range in.Items {
		out.Items[i] = *in.Items[i].DeepCopy()
	}
	return out
}
