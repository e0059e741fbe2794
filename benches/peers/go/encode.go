package main

import (
	"encoding/json"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// encode writes the protobuf of the objects in the directory -templates beside their JSON, for the server:
//
//	go run . encode -templates=../server/templates
func encode() (*report, error) {
	for name, object := range map[string]interface {
		Marshal() ([]byte, error)
	}{"configmap": &corev1.ConfigMap{}, "pod": &corev1.Pod{}, "ipblock": nil} {
		text, err := os.ReadFile(filepath.Join(*templates, name+".json"))
		if err != nil {
			return nil, err
		}
		// As a server sends an object when only its metadata is requested.
		var metadata metav1.PartialObjectMetadata
		if err := json.Unmarshal(text, &metadata); err != nil {
			return nil, err
		}
		if err := write(name+"-metadata.pb", &metadata); err != nil {
			return nil, err
		}
		if object == nil {
			continue
		}
		if err := json.Unmarshal(text, object); err != nil {
			return nil, err
		}
		if err := write(name+".pb", object); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func write(name string, object interface{ Marshal() ([]byte, error) }) error {
	data, err := object.Marshal()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*templates, name), data, 0o644)
}
