// What to run: a dictionary that Python wrote with torch.save.
#pragma once

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/csrc/jit/serialization/pickle.h>

class Job {
 public:
  explicit Job(const std::string& path) : values_(read(path).toGenericDict()) {}

  std::string text(const std::string& name) const { return values_.at(name).toStringRef(); }
  int64_t number(const std::string& name) const { return values_.at(name).toInt(); }
  double real(const std::string& name) const { return values_.at(name).toDouble(); }
  bool flag(const std::string& name) const { return values_.at(name).toBool(); }
  at::Tensor tensor(const std::string& name) const { return values_.at(name).toTensor(); }

  std::vector<at::Tensor> tensors(const std::string& name) const {
    std::vector<at::Tensor> found;
    for (const auto& one : values_.at(name).toListRef()) found.push_back(one.toTensor());
    return found;
  }

 private:
  static c10::IValue read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    return torch::jit::pickle_load({std::istreambuf_iterator<char>(file), {}});
  }

  c10::impl::GenericDict values_;
};
